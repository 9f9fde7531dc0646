"""What a scheduler that lost its state is told by a deployment. Pure."""

from api_types.messages.scheduling import DeploymentAccount, ReplicaAccount
from api_types.payloads.packing import pack
from workflows.model_deployment.state import DeploymentState


def deployment_account(state: DeploymentState, namespace: str, name: str) -> DeploymentAccount:
    """List everything that deployment `name` holds, started or not, deleting or not.

    So a replica that visibility does not list is charged by its deployment, and one whose deployment is not listed by itself.
    """
    accounts = [
        ReplicaAccount(
            uid=replica.uid,
            namespace=namespace,
            deployment=name,
            name=replica.name,
            cluster=replica.cluster,
            index=replica.index,
            generation=replica.generation,
            entry=replica.entry,
            ready=replica.ready,
            serving=replica.serving,
            started=replica.was_started,
            deleting=bool(replica.deletion_reason),
        )
        for replica in state.by_name()
    ]
    return DeploymentAccount(uid=state.uid, epoch=state.epoch, replicas=pack([account.wire() for account in accounts]) if accounts else "")
