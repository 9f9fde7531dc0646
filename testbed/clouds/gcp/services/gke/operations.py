"""Operations of GKE: one at a time on each cluster, read with `get_operation` and `list_operations`."""

from collections.abc import Callable

from google.cloud import container_v1
from google.protobuf.empty_pb2 import Empty
from google.rpc import code_pb2, status_pb2

from testbed.clouds.gcp.calls.errors import CloudError, not_found
from testbed.clouds.gcp.services.interference import cluster_of
from testbed.clouds.gcp.services.operations import Operation
from testbed.clouds.gcp.services.world import World

PROJECT_NUMBER = "100000000001"
"""What stands for the project in links of GKE."""

_API = "https://container.googleapis.com/v1"
_STATUS = {"PENDING": "PENDING", "RUNNING": "RUNNING", "DONE": "DONE"}


def link(world: World, name: str) -> str:
    """Give the link to an object of GKE; it has the number of the project, not its id."""
    return f"{_API}/{name.replace(world.root, f'projects/{PROJECT_NUMBER}', 1)}"


def check_free(world: World, cluster: str) -> None:
    """Refuse while an operation holds the cluster. A refusal counts as a read of that operation, so calling again ends too."""
    operation = world.operations.holding(cluster)
    if operation is None:
        return
    operation.advance()
    raise CloudError(
        "FAILED_PRECONDITION",
        f"Cluster is running incompatible operation {operation.short_name}.",
        reason="CLUSTER_ALREADY_HAS_OPERATION",
        domain="container.googleapis.com",
    )


def begin(world: World, kind: str, target: str, finish: Callable[[], CloudError | None]) -> container_v1.Operation:
    """Begin an operation on a cluster or pool; it holds the cluster until it ends."""
    cluster = cluster_of(target)
    started = world.operations.start(cluster.partition("/clusters/")[0], kind, target, finish, holds=cluster)
    return message(world, started)


def message(world: World, operation: Operation) -> container_v1.Operation:
    """Give an operation as the API answers it."""
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
    if operation.error is not None:
        answer.error = status_pb2.Status(code=code_pb2.Code.Value(operation.error.code), message=operation.error.message)
        answer.status_message = operation.error.message
    return answer


def get_operation(world: World, request: container_v1.GetOperationRequest) -> container_v1.Operation:
    """Give an operation, one read nearer to its end."""
    operation = world.operations.get(request.name)
    if operation is None:
        raise not_found(request.name)
    operation.advance()
    return message(world, operation)


def list_operations(world: World, request: container_v1.ListOperationsRequest) -> container_v1.ListOperationsResponse:
    """Give the operations of a location, or of all with `-`, each one read nearer to its end."""
    parent = request.parent.removesuffix("/locations/-")
    found = world.operations.below(parent) if parent == request.parent else world.operations.below_locations(parent)
    found = [operation for operation in found if "/clusters/" in operation.target]
    for operation in found:
        operation.advance()
    return container_v1.ListOperationsResponse(operations=[message(world, operation) for operation in found])


def cancel_operation(world: World, request: container_v1.CancelOperationRequest) -> Empty:
    """End the creation of a pool without the pool; nothing else can be cancelled."""
    operation = world.operations.get(request.name)
    if operation is None:
        raise not_found(request.name)
    if operation.done or operation.kind != "CREATE_NODE_POOL":
        raise CloudError("FAILED_PRECONDITION", f"Operation {operation.short_name} cannot be cancelled.")
    operation.state = "DONE"
    operation.error = CloudError("CANCELLED", "Operation was cancelled.")
    world.remove(operation.target)
    return Empty()
