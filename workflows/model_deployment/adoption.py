"""How a new deployment adopts replicas that an earlier one of its name left running, for instance because its workflow was terminated."""

from collections.abc import Mapping
from typing import Any

from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import Survey
from api_types.messages.scheduling import ReplicaAccount
from api_types.messages.signals import ModelReplicaSignals
from workflows.entity import backoff
from workflows.entity.context import EntityContext
from workflows.entity.querying import query_each, query_pages
from workflows.entity.sending import call_entities
from workflows.model_deployment.replicas import ReplicaController
from workflows.model_deployment.state import DeploymentState, TrackedReplica

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
        survey = Survey(kinds=["ModelReplica"], namespace=context.namespace, deployment=context.name)
        found = await call_entities(EntityClient.survey, survey, "find replicas to adopt", local=True)
        if found.answers:
            await self._adopt_all(survey)
        context.state.adopted = True

    async def _adopt_all(self, survey: Survey) -> None:
        unresponsive: list[str] = []
        async for page in query_pages(survey.model_copy(update={"query": "account"}), "read the accounts of replicas to adopt"):
            self._adopt(page.answers)
            unresponsive += page.unresponsive
        for attempt in range(QUERY_RETRIES):
            if not unresponsive:
                break
            await workflow.sleep(backoff.transient(attempt), summary="wait for replicas to answer")
            again = await query_each(unresponsive, "account", "query unresponsive replicas again")
            self._adopt(again.answers)
            unresponsive = sorted(again.unresponsive)
        if unresponsive:
            self._context.record_event(
                "Warning", "ReplicasNotResponding", f"replicas do not answer and are not adopted: {', '.join(unresponsive)}"
            )
        adopted = [replica for replica in self._context.state.replicas.values() if replica.started]
        await self._replicas.signal(adopted, ModelReplicaSignals.RESYNC, None)

    def _adopt(self, accounts: Mapping[str, Any]) -> None:
        state, context = self._context.state, self._context
        for account in accounts.values():
            found = ReplicaAccount.model_validate(account)
            if found.gone or (found.namespace, found.deployment) != (context.namespace, context.name):
                continue
            state.generation = max(state.generation, found.generation)
            state.replicas[found.uid] = TrackedReplica(
                uid=found.uid,
                name=found.name,
                cluster=found.cluster,
                index=found.index,
                entry=found.entry,
                generation=found.generation,
                started=True,
                bound=True,
                deletion_reason="Terminating" if found.deleting else "",
            )
            context.record_event("Normal", "Adopted", f"{found.name} on {found.cluster}")
