"""How a deployment adopts replicas that it does not know: those that an earlier deployment of its name left behind.

A new deployment finds them in visibility. One that runs and that visibility did not list reports later, and is adopted then.

One that was terminated is only remembered. If it is still wanted the scheduler says so, and nothing is started that it has not charged. If
the deployment is deleted, it is started again to delete what it has applied: where the scheduler and a cluster were lost too, no other
object could name it.
"""

from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import Survey
from workflows.entity import backoff
from workflows.entity.calls.querying import query_each, query_pages
from workflows.entity.calls.sending import call_entities
from workflows.entity.context import EntityContext
from workflows.model_deployment.replicas import ReplicaController
from workflows.model_deployment.state import DeploymentState

# A replica whose worker is just starting answers at the second or third query.
QUERY_RETRIES = 3


class Adoption:
    """Finds replicas of this deployment that are not tracked."""

    def __init__(self, context: EntityContext[DeploymentState], replicas: ReplicaController) -> None:
        self._context = context
        self._replicas = replicas

    async def run(self) -> None:
        """Adopt replicas. Most deployments have none, and then this costs one local activity."""
        context = self._context
        survey = Survey(kinds=["ModelReplica"], namespace=context.namespace, deployment=context.name, ended=True)
        found = await call_entities(EntityClient.survey, survey, "find replicas to adopt", local=True)
        self._replicas.record_ended(found.ended)
        if found.answers or found.after:
            await self._adopt_all(survey)
        context.state.adopted = True

    async def _adopt_all(self, survey: Survey) -> None:
        unresponsive: list[str] = []
        async for page in query_pages(survey.model_copy(update={"query": "account"}), "read the accounts of replicas to adopt"):
            self._replicas.adopt(page.answers)
            self._replicas.record_ended(page.ended)
            unresponsive += page.unresponsive
        for attempt in range(QUERY_RETRIES):
            if not unresponsive:
                break
            await workflow.sleep(backoff.transient(attempt), summary="wait for replicas to answer")
            again = await query_each(unresponsive, "account", "query unresponsive replicas again")
            self._replicas.adopt(again.answers)
            unresponsive = sorted(again.unresponsive)
        if unresponsive:
            # They are queried again: what is not adopted would never be deleted.
            self._replicas.record_unknown([workflow_id.rsplit("/", 1)[-1] for workflow_id in unresponsive])
            self._context.record_event(
                "Warning", "ReplicasNotResponding", f"replicas do not answer and are not adopted yet: {', '.join(unresponsive)}"
            )
        self._replicas.request_resync()
