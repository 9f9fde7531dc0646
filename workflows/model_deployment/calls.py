"""Carries out the orders of a deployment.

The result of a call may lead to more orders.
"""

from collections import deque
from collections.abc import Sequence

from activities.messaging.entity_client import EntityClient
from api_types import names
from api_types.messages.entities import StartReplicas
from workflows.entity.calls.querying import query_each
from workflows.entity.calls.sending import LOCAL_CALLS_MAX, call_entities, send_all
from workflows.model_deployment.orders import (
    Order,
    ReadReplicaAccounts,
    SendDeploymentSignals,
    StartReplicaWorkflows,
)
from workflows.model_deployment.replicas import DeploymentReplicaController


async def carry_out(
    orders: Sequence[Order], replicas: DeploymentReplicaController
) -> None:
    """Carry out orders, and the orders that follow from their results."""
    waiting = deque(orders)
    while waiting:
        waiting.extend(await _carry_out(waiting.popleft(), replicas))


async def _carry_out(
    order: Order, replicas: DeploymentReplicaController
) -> list[Order]:
    match order:
        case SendDeploymentSignals(signals, summary, recorded):
            replicas.sent(
                await send_all(
                    signals,
                    summary,
                    local=not recorded and len(signals) <= LOCAL_CALLS_MAX,
                )
            )
            return []
        case StartReplicaWorkflows(starts):
            summary = f"start {len(starts)} replicas of {starts[0].deployment}"
            wanted = StartReplicas(replicas=starts)
            return replicas.started(
                order, await call_entities(EntityClient.start_replicas, wanted, summary)
            )
        case ReadReplicaAccounts(unknown, _):
            ids = [
                names.workflow_id("ModelReplica", replicas.namespace, name)
                for name in unknown
            ]
            answered = await query_each(
                ids,
                "account",
                f"read the accounts of {len(ids)} replicas that are not tracked",
            )
            return replicas.accounts_read(
                order, answered.answers, answered.unresponsive
            )
