"""Operations of GKE: those that a handler began, and those that others began on the same cluster, which holds it for all."""

from typing import Any

from google.rpc import code_pb2

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.failures import Signal, failure
from api_types.errors import ModelplaneError

_DONE = "DONE"


class GkeOperations:
    """The operations of one location, `projects/<id>/locations/<region>`."""

    def __init__(self, api: GoogleApi) -> None:
        self._api = api
        self._own = ""

    def begin(self, operation: Any | None) -> None:
        """Keep what the cloud answered to a write; None, if there was nothing to do."""
        self._own = str(operation.name) if operation is not None else ""

    def own(self, location: str, doing: str, *, deleting: bool = False) -> tuple[Any | None, ModelplaneError | None]:
        """Give the operation that was begun while it runs, or once the error that it ended with."""
        if not self._own:
            return None, None
        operation = self._api.find("container", "get_operation", {"name": f"{location}/operations/{self._own}"})
        if operation is not None and operation.status.name != _DONE:
            return operation, None
        self._own = ""
        if operation is None or not (operation.error.code or operation.error.message):
            return None, None
        code = code_pb2.Code.Name(operation.error.code) if operation.error.code in code_pb2.Code.values() else ""
        text = str(operation.error.message or operation.status_message)
        return None, failure(Signal(code, text), doing, deleting=deleting)

    def running(self, location: str, cluster: str) -> list[Any]:
        """List what runs on a cluster and on its pools, whoever began it."""
        listed = self._api.read("container", "list_operations", {"parent": location}).operations
        end = f"/clusters/{cluster}"
        return [each for each in listed if each.status.name != _DONE and (each.target_link.endswith(end) or f"{end}/" in each.target_link)]


def words(operation: Any) -> str:
    """Say what runs."""
    return f"operation {operation.name} ({operation.operation_type.name}) runs"
