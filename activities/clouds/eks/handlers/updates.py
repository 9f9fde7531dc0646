"""Updates of EKS objects. They continue after the call returns, and may fail later."""

import threading
from typing import Any

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.handlers.base import issues_error, issues_text
from api_types.errors import CloudObjectBroken

_FAILED = ("Failed", "Cancelled")


class Updates:
    """The last update of each object that this process started.

    A failed update is reported before the next one starts. After a restart of the
    process the update is just started again. Thread-safe.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[tuple[str, str], ...], str] = {}
        self._lock = threading.Lock()

    def order(
        self,
        clients: AwsClients,
        operation: str,
        title: str,
        who: dict[str, str],
        **change: Any,
    ) -> None:
        """Start an update.

        `who` has the names that identify the object. If the last update failed, this
        raises its error once instead.
        """
        key = tuple(sorted(who.items()))
        with self._lock:
            last = self._last.pop(key, "")
        if last:
            _check(clients, title, who, last)
        answer = clients.update("eks", operation, **_names(operation, who), **change)
        with self._lock:
            self._last[key] = str(answer.get("update", {}).get("id", ""))


def _names(operation: str, who: dict[str, str]) -> dict[str, str]:
    """Return the names as arguments of an operation.

    The operations that update the cluster itself call its name `name`.
    """
    if operation == "update_cluster_version":
        return _with_name(who)
    return dict(who)


def _with_name(who: dict[str, str]) -> dict[str, str]:
    renamed = {"clusterName": "name"}
    return {renamed.get(name, name): value for name, value in who.items()}


def _check(clients: AwsClients, title: str, who: dict[str, str], update: str) -> None:
    names = _with_name(who)
    found = clients.read("eks", "describe_update", updateId=update, **names).get(
        "update", {}
    )
    if found.get("status") in _FAILED:
        issues = [
            {"code": each.get("errorCode", ""), "message": each.get("errorMessage", "")}
            for each in found.get("errors", ())
        ]
        text = issues_text(issues)
        kind = issues_error(issues) or CloudObjectBroken
        change = f"{found.get('type', 'update')} {found['status']}"
        raise kind(f"{title}: {change}: {text or 'no reason given'}")
