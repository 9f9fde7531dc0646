"""The problems that EKS reports of existing control planes, node groups and add-ons."""

from collections.abc import Sequence

from activities.clouds.eks.handlers.base import Item, issues_error, issues_text
from activities.clouds.lifecycle.handler import HealthIssue
from api_types.errors import CapacityUnavailable, CloudObjectBroken, QuotaExceeded

DEGRADED = "DEGRADED"
_UNHEALTHY = (DEGRADED, "UPDATE_FAILED")
_LACKS_NODES = (CapacityUnavailable, QuotaExceeded)
_RESOURCES_MAX = 3


def health_of(status: str, issues: Sequence[Item]) -> HealthIssue | None:
    """Return the problem that EKS reports of an existing object, or None.

    A node group with status DEGRADED does not get all its nodes, for example after the
    end of its capacity block. An object can have issues while its status is ACTIVE.
    """
    if not issues and status not in _UNHEALTHY:
        return None
    error = issues_error(issues) or CloudObjectBroken
    code = str(issues[0].get("code", "")) if issues else ""
    resources = [str(each) for issue in issues for each in issue.get("resourceIds", ())]
    named = ", ".join(resources[:_RESOURCES_MAX])
    words = issues_text(issues)
    parts = [
        f"status {status}" if status in _UNHEALTHY else "",
        f"{words} ({named})" if named else words,
    ]
    return HealthIssue(
        error,
        code or status,
        ": ".join(filter(None, parts)),
        lacks_nodes=status == DEGRADED or error in _LACKS_NODES,
    )
