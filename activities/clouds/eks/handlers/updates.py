"""Changes of EKS objects, which run for a while after they were accepted, and whose failure only the next question shows."""

import threading
from typing import Any

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.failures import issue_error
from api_types.errors import CloudObjectBroken

_FAILED = ("Failed", "Cancelled")


class Updates:
    """The last change of each object that this process has ordered. Thread-safe.

    Kept so that a change which fails is reported, not ordered again at once; a process that starts anew orders it once more.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[tuple[str, str], ...], str] = {}
        self._lock = threading.Lock()

    def order(self, clients: AwsClients, operation: str, title: str, who: dict[str, str], **change: Any) -> None:
        """Order a change. `who` are the names of the object. Raises the error of the last one if that failed, and forgets it."""
        key = tuple(sorted(who.items()))
        with self._lock:
            last = self._last.pop(key, "")
        if last:
            _check(clients, title, who, last)
        answer = clients.update("eks", operation, **_names(operation, who), **change)
        with self._lock:
            self._last[key] = str(answer.get("update", {}).get("id", ""))


def _names(operation: str, who: dict[str, str]) -> dict[str, str]:
    """Give the names as the operation has them: only the one of the cluster itself has it as `name`."""
    return {"name" if name == "clusterName" and operation == "update_cluster_version" else name: value for name, value in who.items()}


def _check(clients: AwsClients, title: str, who: dict[str, str], update: str) -> None:
    names = {"name" if name == "clusterName" else name: value for name, value in who.items()}
    found = clients.read("eks", "describe_update", updateId=update, **names).get("update", {})
    if found.get("status") in _FAILED:
        errors = found.get("errors", ())
        text = "; ".join(f"{each.get('errorCode', '')}: {each.get('errorMessage', '')}" for each in errors)[:1000]
        code = str(errors[0].get("errorCode", "")) if errors else ""
        raise (issue_error(code, text) or CloudObjectBroken)(
            f"{title}: {found.get('type', 'update')} {found['status']}: {text or 'no reason given'}"
        )
