"""Operations of GKE, started by a handler or by others.

An operation on a cluster locks all of it, and one on a pool locks that pool. GKE runs
a few operations on pools of a cluster at once, and refuses more of them for the moment.
"""

import contextlib
from typing import Any

from google.rpc import code_pb2

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.failures import GcpErrorInfo, failure
from api_types.errors import (
    Busy,
    InvalidInput,
    ModelplaneError,
    NotYet,
    PermissionDenied,
    Unsupported,
)

_DONE = "DONE"
_CREATE_POOL = "CREATE_NODE_POOL"
# The operation has ended, or it cannot be cancelled any more or with this credential.
_NOT_CANCELLED = (Busy, InvalidInput, NotYet, PermissionDenied, Unsupported)


class GkeOperations:
    """The operations of one location, `projects/<id>/locations/<region>`."""

    def __init__(self, api: GoogleApi) -> None:
        self._api = api
        self._own = ""
        self._cancelled = set[str]()

    def begin(self, operation: Any | None) -> None:
        """Store the operation that a write returned, or None for no change."""
        self._own = str(operation.name) if operation is not None else ""

    def own(
        self, location: str, doing: str, *, deleting: bool = False
    ) -> tuple[Any | None, ModelplaneError | None]:
        """Return the handler's operation while it runs, and once if it failed."""
        if not self._own:
            return None, None
        operation = self._api.find(
            "container", "get_operation", {"name": f"{location}/operations/{self._own}"}
        )
        if operation is not None and operation.status.name != _DONE:
            return operation, None
        self._own = ""
        if operation is None:
            return None, None
        # Some errors are only in the status message.
        text = str(operation.error.message or operation.status_message)
        if not (operation.error.code or text):
            return None, None
        code = (
            code_pb2.Code.Name(operation.error.code)
            if operation.error.code in code_pb2.Code.values()
            else ""
        )
        return None, failure(GcpErrorInfo(code, text), doing, deleting=deleting)

    def locking(self, location: str, cluster: str, pool: str) -> list[Any]:
        """List the running operations that lock a pool, those on the pool first."""
        running = self.running(location, cluster)
        own = [each for each in running if is_on_pool(each, pool)]
        of_cluster = [
            each
            for each in running
            if each.target_link.endswith(f"/clusters/{cluster}")
        ]
        return [*own, *of_cluster]

    def running(self, location: str, cluster: str) -> list[Any]:
        """List the running operations on a cluster and its pools, whoever started them."""
        listed = self._api.read(
            "container", "list_operations", {"parent": location}
        ).operations
        end = f"/clusters/{cluster}"
        return [
            each
            for each in listed
            if each.status.name != _DONE
            and (each.target_link.endswith(end) or f"{end}/" in each.target_link)
        ]

    def cancel_creations(self, location: str, cluster: str, pool: str = "") -> None:
        """Cancel the creation of a cluster's pools, or of one pool.

        The machines of a pool that is being deleted are not needed. Each creation is
        cancelled once. A failure is ignored, because the creation ends by itself.
        """
        for each in self.running(location, cluster):
            if each.operation_type.name != _CREATE_POOL or each.name in self._cancelled:
                continue
            if not pool or is_on_pool(each, pool):
                self._cancelled.add(each.name)
                with contextlib.suppress(*_NOT_CANCELLED):
                    self._api.change(
                        "container",
                        "cancel_operation",
                        {"name": f"{location}/operations/{each.name}"},
                    )


def is_on_pool(operation: Any, pool: str) -> bool:
    return str(operation.target_link).endswith(f"/nodePools/{pool}")


def words(operation: Any) -> str:
    return f"operation {operation.name} ({operation.operation_type.name}) runs"
