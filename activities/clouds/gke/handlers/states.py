"""What GKE says of a cluster or pool that is not well, and whose it is."""

from collections.abc import Mapping
from typing import Any

from activities.clouds.gke.failures import condition_failure
from api_types import labels
from api_types.errors import ModelplaneError


def trouble(doing: str, resource: Any) -> ModelplaneError:
    """Give the error that the conditions of a cluster or pool tell, or else its status message."""
    known = [each for each in resource.conditions if each.code.name not in ("UNKNOWN", "SET_BY_OPERATOR")]
    for condition in [*known, *resource.conditions]:
        return condition_failure(condition.code.name, condition.message or resource.status_message, doing)
    return condition_failure("", resource.status_message or f"status {resource.status.name}", doing)


def is_ours(observed: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether labels have the owner mark of the wanted ones."""
    return observed.get(labels.GCP_OWNER) == wanted[labels.GCP_OWNER]


def mark(observed: Mapping[str, str]) -> str:
    """Say in words whose labels these are."""
    owner = observed.get(labels.GCP_OWNER, "")
    return f'its label {labels.GCP_OWNER} is "{owner}"' if owner else f"it has no label {labels.GCP_OWNER}"
