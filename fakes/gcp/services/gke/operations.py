"""Operations of GKE: one at a time on each pool, and none beside one on the cluster."""

from collections.abc import Callable

from google.cloud import container_v1
from google.protobuf.empty_pb2 import Empty
from google.rpc import code_pb2, status_pb2

from fakes.gcp.calls.errors import ONLY_MESSAGE, CloudError, not_found
from fakes.gcp.services.interference import cluster_of
from fakes.gcp.services.operations import Operation
from fakes.gcp.services.world import World

PROJECT_NUMBER = "100000000001"
"""The placeholder of the project in links of GKE."""

AT_ONCE_MAX = 5
"""The most operations on the pools of a cluster at once."""

_API = "https://container.googleapis.com/v1"
_STATUS = {"PENDING": "PENDING", "RUNNING": "RUNNING", "DONE": "DONE"}


def link(world: World, name: str) -> str:
    """Return the link to an object of GKE.

    It has the number of the project, not its id.
    """
    return f"{_API}/{name.replace(world.root, f'projects/{PROJECT_NUMBER}', 1)}"


def check_free(world: World, target: str) -> None:
    """Refuse a change of a cluster or pool that a running operation locks.

    An operation on a cluster locks all of it, and one on a pool locks that pool and the
    cluster. A cluster has a few operations at once. A refusal counts as a read of the
    operations, so retries end too.
    """
    cluster = cluster_of(target)
    running = world.operations.on_cluster(cluster)
    locking = [
        each
        for each in running
        if target == cluster or each.target in {cluster, target}
    ]
    if locking:
        locking[0].advance()
        raise CloudError(
            "FAILED_PRECONDITION",
            f"Cluster is running incompatible operation {locking[0].short_name}.",
            reason="CLUSTER_ALREADY_HAS_OPERATION",
            domain="container.googleapis.com",
        )
    if len(running) >= AT_ONCE_MAX:
        for each in running:
            each.advance()
        name = cluster.rpartition("/")[2]
        raise CloudError(
            "RESOURCE_EXHAUSTED",
            f'Too many operations: cluster "{name}" hits the concurrent operations '
            f"quota {AT_ONCE_MAX}, please try again later.",
        )


def begin(
    world: World, kind: str, target: str, finish: Callable[[], CloudError | None]
) -> container_v1.Operation:
    """Start an operation on a cluster or pool, which it locks until it ends."""
    cluster = cluster_of(target)
    started = world.operations.start(
        cluster.partition("/clusters/")[0], kind, target, finish, holds=cluster
    )
    return message(world, started)


def message(world: World, operation: Operation) -> container_v1.Operation:
    """Return an operation in the form of the API."""
    location = operation.name.split("/")[3]
    answer = container_v1.Operation(
        name=operation.short_name,
        operation_type=operation.kind,
        status=_STATUS[operation.state],
        target_link=link(world, operation.target),
        self_link=link(world, operation.name),
        location=location,
        zone=location,
    )
    if operation.error is not None and operation.error.reason == ONLY_MESSAGE:
        answer.status_message = operation.error.message
    elif operation.error is not None:
        answer.error = status_pb2.Status(
            code=code_pb2.Code.Value(operation.error.code),
            message=operation.error.message,
        )
        answer.status_message = operation.error.message
    return answer


def get_operation(
    world: World, request: container_v1.GetOperationRequest
) -> container_v1.Operation:
    """Return an operation. This advances it."""
    operation = world.operations.get(request.name)
    if operation is None:
        raise not_found(request.name)
    operation.advance()
    return message(world, operation)


def list_operations(
    world: World, request: container_v1.ListOperationsRequest
) -> container_v1.ListOperationsResponse:
    """Return the operations of a location, or of all with `-`. This advances them."""
    parent = request.parent.removesuffix("/locations/-")
    found = (
        world.operations.below(parent)
        if parent == request.parent
        else world.operations.below_locations(parent)
    )
    found = [operation for operation in found if "/clusters/" in operation.target]
    for operation in found:
        operation.advance()
    return container_v1.ListOperationsResponse(
        operations=[message(world, operation) for operation in found]
    )


def cancel_operation(
    world: World, request: container_v1.CancelOperationRequest
) -> Empty:
    """Cancel the creation of a pool. Nothing else can be cancelled."""
    operation = world.operations.get(request.name)
    if operation is None:
        raise not_found(request.name)
    if operation.done or operation.kind != "CREATE_NODE_POOL":
        raise CloudError(
            "FAILED_PRECONDITION",
            f"Operation {operation.short_name} cannot be cancelled.",
        )
    operation.state = "DONE"
    operation.error = CloudError("CANCELLED", "Operation was cancelled.")
    world.remove(operation.target)
    return Empty()
