"""Enabled APIs, and the long-running operations of Service Usage and Filestore."""

from google.cloud import service_usage_v1
from google.longrunning import operations_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.empty_pb2 import Empty
from google.rpc import code_pb2, status_pb2

from fakes.gcp.calls.errors import (
    CloudError,
    invalid,
    not_found,
    service_disabled,
)
from fakes.gcp.calls.faults import OperationFails
from fakes.gcp.calls.script import first_of
from fakes.gcp.services.operations import Operation
from fakes.gcp.services.world import World


def check_enabled(world: World, service: str) -> None:
    """Refuse a call to an API that is not enabled, or was just enabled."""
    name = f"{world.root}/services/{service}"
    left = world.hidden.get(name, 0)
    if left > 0:
        world.hidden[name] = left - 1
    if left > 0 or service not in world.enabled:
        raise service_disabled(world.project, service)


def _service(world: World, name: str) -> service_usage_v1.Service:
    api = name.rpartition("/")[2]
    if not api.endswith(".googleapis.com"):
        raise CloudError(
            "PERMISSION_DENIED", f"Service {api} not found or permission denied."
        )
    return service_usage_v1.Service(
        name=name,
        parent=world.root,
        state="ENABLED" if api in world.enabled else "DISABLED",
        config=service_usage_v1.ServiceConfig(name=api),
    )


def get_service(
    world: World, request: service_usage_v1.GetServiceRequest
) -> service_usage_v1.Service:
    """Return whether an API is enabled."""
    world.operations.advance(request.name)
    return _service(world, request.name)


def list_services(
    world: World, request: service_usage_v1.ListServicesRequest
) -> service_usage_v1.ListServicesResponse:
    """Return the enabled APIs."""
    if request.filter not in {"", "state:ENABLED"}:
        raise invalid(f'The fake knows no filter "{request.filter}".')
    services = [
        _service(world, f"{world.root}/services/{api}") for api in sorted(world.enabled)
    ]
    return service_usage_v1.ListServicesResponse(services=services)


def enable_service(
    world: World, request: service_usage_v1.EnableServiceRequest
) -> operations_pb2.Operation:
    """Start to enable an API."""
    service = _service(world, request.name)
    fails = first_of(world.met, OperationFails)

    def finish() -> CloudError | None:
        if fails is None or fails.effect:
            world.enabled.add(request.name.rpartition("/")[2])
        return fails.error() if fails else None

    service.state = service_usage_v1.State.ENABLED
    answer = service_usage_v1.EnableServiceResponse.pb(
        service_usage_v1.EnableServiceResponse(service=service)
    )
    return message(
        world.operations.start("", "enable", request.name, finish, answer=answer)
    )


def disable_service(
    world: World, request: service_usage_v1.DisableServiceRequest
) -> operations_pb2.Operation:
    """Disable an API. A deletion of a cluster must not do that."""
    service = _service(world, request.name)
    world.enabled.discard(request.name.rpartition("/")[2])
    service.state = service_usage_v1.State.DISABLED
    answer = service_usage_v1.DisableServiceResponse.pb(
        service_usage_v1.DisableServiceResponse(service=service)
    )
    return message(world.operations.start("", "disable", request.name, answer=answer))


def message(operation: Operation) -> operations_pb2.Operation:
    """Return a long-running operation in the form of the APIs."""
    answer = operations_pb2.Operation(name=operation.name, done=operation.done)
    if not operation.done:
        return answer
    if operation.error is not None:
        answer.error.CopyFrom(
            status_pb2.Status(
                code=code_pb2.Code.Value(operation.error.code),
                message=operation.error.message,
            )
        )
        return answer
    packed = AnyMessage()
    packed.Pack(operation.answer if operation.answer is not None else Empty())
    answer.response.CopyFrom(packed)
    return answer


def get_operation(
    world: World, request: operations_pb2.GetOperationRequest
) -> operations_pb2.Operation:
    """Return a long-running operation. This advances it."""
    operation = world.operations.get(request.name)
    if operation is None:
        raise not_found(request.name)
    operation.advance()
    return message(operation)
