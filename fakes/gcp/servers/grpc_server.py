"""The gRPC server: one generic handler per service.

The client libraries ship no base classes for servers.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.json_format import MessageToDict
from google.rpc import code_pb2, error_details_pb2, status_pb2

from fakes.gcp.calls.errors import CloudError, ConnectionCut
from fakes.gcp.servers.methods import (
    SERVICES,
    Function,
    Service,
    target,
    wire_name,
)
from fakes.gcp.services.dispatch import Dispatcher, GcpRequest
from fakes.gcp.services.service_usage import check_enabled

_THREADS = 16
_DETAILS = "grpc-status-details-bin"
# If two servers of one process could listen on one port, calls would reach either of
# them.
_OPTIONS = (("grpc.so_reuseport", 0),)


class GrpcServer:
    """Serves every method of `methods.py` on one loopback port.

    Port 0 selects a free one.
    """

    def __init__(self, dispatcher: Dispatcher, port: int = 0) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="fake-google")
        self._server = grpc.server(self._threads, options=_OPTIONS)
        for name, handlers in method_handlers(dispatcher).items():
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(name, handlers),)
            )
        self.port = int(self._server.add_insecure_port(f"127.0.0.1:{port}"))
        self._server.start()

    def stop(self) -> None:
        """Stop the server and its threads. Running calls are aborted."""
        self._server.stop(grace=None).wait()
        self._threads.shutdown(wait=True)


def method_handlers(
    dispatcher: Dispatcher,
) -> dict[str, dict[str, grpc.RpcMethodHandler]]:
    """Return the handlers of all methods, by service and name on the wire."""
    return {
        service.full_name: {
            wire_name(function): _handler(dispatcher, service, function, kind)
            for function, kind in service.methods
        }
        for service in SERVICES
    }


def _handler(
    dispatcher: Dispatcher, service: Service, function: Function, kind: Any
) -> Any:
    method = function.__name__
    plain = hasattr(kind, "FromString")

    def answer(message: Any, context: grpc.ServicerContext) -> bytes:
        request = GcpRequest(
            host=service.host,
            service=service.short_name,
            method=method,
            target=target(dispatcher.world, method, message),
            message=MessageToDict(
                message if plain else kind.pb(message), preserving_proto_field_name=True
            ),
            token=_token(context),
        )

        def act() -> bytes:
            check_enabled(dispatcher.world, service.host)
            return _bytes(function(dispatcher.world, message))

        return _answered(context, lambda: dispatcher.run(request, act))

    deserialize = kind.FromString if plain else kind.deserialize
    # Serialize the answer while no other call can change it.
    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=deserialize, response_serializer=bytes
    )


def _bytes(message: Any) -> bytes:
    return bytes(
        message.SerializeToString()
        if hasattr(message, "SerializeToString")
        else type(message).serialize(message)
    )


def _token(context: grpc.ServicerContext) -> str | None:
    for key, value in context.invocation_metadata():
        if key.lower() == "authorization":
            return str(value).removeprefix("Bearer ")
    return None


def _answered(context: grpc.ServicerContext, run: Callable[[], bytes]) -> bytes:
    try:
        return run()
    except CloudError as error:
        context.set_trailing_metadata(((_DETAILS, _status(error).SerializeToString()),))
        context.abort(getattr(grpc.StatusCode, error.code), error.message)
    except ConnectionCut:
        context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
    raise AssertionError("abort raises")


def _status(error: CloudError) -> status_pb2.Status:
    status = status_pb2.Status(
        code=code_pb2.Code.Value(error.code), message=error.message
    )
    if error.reason:
        detail = AnyMessage()
        detail.Pack(
            error_details_pb2.ErrorInfo(
                reason=error.reason, domain=error.domain, metadata=error.metadata
            )
        )
        status.details.append(detail)
    return status
