"""The account that a deployment sends to a scheduler that lost its state. Pure."""

from api_types.messages.scheduling import DeploymentAccount, ReplicaAccount
from api_types.payloads.packing import pack
from workflows.model_deployment.state import DeploymentState


def deployment_account(
    state: DeploymentState, namespace: str, name: str
) -> DeploymentAccount:
    """Return all replicas of deployment `name`: started or not, being deleted or not.

    The scheduler charges a replica that visibility does not list by the account of its
    deployment.
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
    return DeploymentAccount(
        uid=state.uid,
        epoch=state.epoch,
        replicas=pack([account.wire() for account in accounts]) if accounts else "",
    )
