"""How a deployment adopts the replicas of an earlier deployment of its name.

A new deployment finds these replicas in visibility. A running replica that visibility
does not list is adopted when it reports.

A terminated replica is only recorded. While the scheduler still charges its nodes, it
places the replica again. When the deployment is deleted, it restarts terminated
replicas so that they delete their objects. No other workflow knows these objects when
the scheduler and a cluster are lost too.
"""

from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import Survey
from workflows.entity import backoff
from workflows.entity.calls.querying import query_each, query_pages
from workflows.entity.calls.sending import call_entities
from workflows.entity.context import EntityContext
from workflows.model_deployment.replicas import DeploymentReplicaController
from workflows.model_deployment.state import DeploymentState

# A replica whose worker is starting answers the second or third query.
QUERY_RETRIES = 3


class ReplicaAdoption:
    """Finds replicas of this deployment that it does not track."""

    def __init__(
        self,
        context: EntityContext[DeploymentState],
        replicas: DeploymentReplicaController,
    ) -> None:
        self._context = context
        self._replicas = replicas

    async def run(self) -> None:
        """Adopt replicas.

        Most deployments have none; the check then costs one local activity.
        """
        context = self._context
        survey = Survey(
            kinds=["ModelReplica"],
            namespace=context.namespace,
            deployment=context.name,
            ended=True,
        )
        found = await call_entities(
            EntityClient.survey, survey, "find replicas to adopt", local=True
        )
        self._replicas.record_ended(found.ended)
        if found.answers or found.after:
            await self._adopt_all(survey)
        context.state.adopted = True

    async def _adopt_all(self, survey: Survey) -> None:
        unresponsive: list[str] = []
        async for page in query_pages(
            survey.model_copy(update={"query": "account"}),
            "read the accounts of replicas to adopt",
        ):
            self._replicas.adopt(page.answers)
            self._replicas.record_ended(page.ended)
            unresponsive += page.unresponsive
        for attempt in range(QUERY_RETRIES):
            if not unresponsive:
                break
            await workflow.sleep(
                backoff.transient(attempt), summary="wait for replicas to answer"
            )
            again = await query_each(
                unresponsive, "account", "query unresponsive replicas again"
            )
            self._replicas.adopt(again.answers)
            unresponsive = sorted(again.unresponsive)
        if unresponsive:
            # Query these replicas again. The deployment never deletes a replica that it
            # has not adopted.
            self._replicas.record_unknown(
                [workflow_id.rsplit("/", 1)[-1] for workflow_id in unresponsive]
            )
            self._context.record_event(
                "Warning",
                "ReplicasNotResponding",
                f"replicas do not answer and are not adopted yet: {', '.join(unresponsive)}",
            )
        self._replicas.request_resync()
