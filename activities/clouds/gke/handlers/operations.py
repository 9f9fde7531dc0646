"""Operations of GKE: those that a handler began, and those that others began on the same cluster, which holds it for all."""

import contextlib
from typing import Any

from google.rpc import code_pb2

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.failures import Signal, failure
from api_types.errors import Busy, InvalidInput, ModelplaneError, NotYet, PermissionDenied, Unsupported

_DONE = "DONE"
_CREATE_POOL = "CREATE_NODE_POOL"
# It ended meanwhile, cannot be cancelled any more, or not with this credential.
_NOT_CANCELLED = (Busy, InvalidInput, NotYet, PermissionDenied, Unsupported)


class GkeOperations:
    """The operations of one location, `projects/<id>/locations/<region>`."""

    def __init__(self, api: GoogleApi) -> None:
        self._api = api
        self._own = ""
        self._cancelled = set[str]()

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

    def cancel_creations(self, location: str, cluster: str, pool: str = "") -> None:
        """Cancel what creates pools of a cluster, or one pool: for what is deleted nobody waits for machines.

        Once for each; that it cannot be cancelled is no failure, since it ends by itself.
        """
        for each in self.running(location, cluster):
            if each.operation_type.name != _CREATE_POOL or each.name in self._cancelled:
                continue
            if not pool or each.target_link.endswith(f"/nodePools/{pool}"):
                self._cancelled.add(each.name)
                with contextlib.suppress(*_NOT_CANCELLED):
                    self._api.change("container", "cancel_operation", {"name": f"{location}/operations/{each.name}"})


def words(operation: Any) -> str:
    """Say what runs."""
    return f"operation {operation.name} ({operation.operation_type.name}) runs"
