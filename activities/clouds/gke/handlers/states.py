"""The error state and the owner of a cluster or pool, as GKE reports them."""

import shlex
from collections.abc import Mapping
from typing import Any

from activities.clouds.gke.failures import condition_failure
from activities.clouds.lifecycle.handler import HealthIssue
from api_types import labels
from api_types.errors import CapacityUnavailable, ModelplaneError, QuotaExceeded

_RUNNING_WITH_ERROR = "RUNNING_WITH_ERROR"
_UNHEALTHY = (_RUNNING_WITH_ERROR, "DEGRADED")
_LACKS_NODES = (CapacityUnavailable, QuotaExceeded)
# GKE sets this condition for its own operators. It is no problem.
_OF_OPERATORS = "SET_BY_OPERATOR"


def trouble(doing: str, resource: Any) -> ModelplaneError:
    """Return the error of the first telling condition, else of the status message."""
    known = [
        each
        for each in resource.conditions
        if each.code.name not in ("UNKNOWN", _OF_OPERATORS)
    ]
    for condition in [*known, *resource.conditions]:
        return condition_failure(
            condition.code.name, condition.message or resource.status_message, doing
        )
    return condition_failure(
        "", resource.status_message or f"status {resource.status.name}", doing
    )


def health_of(doing: str, resource: Any) -> HealthIssue | None:
    """Return the problem that GKE reports of an existing cluster or pool, or None."""
    status = resource.status.name
    codes = [
        each.code.name
        for each in resource.conditions
        if each.code.name != _OF_OPERATORS
    ]
    if not codes and status not in _UNHEALTHY:
        return None
    found = trouble(doing, resource)
    known = [code for code in codes if code != "UNKNOWN"]
    text = found.message.removeprefix(f"{doing}: ")
    return HealthIssue(
        type(found),
        next(iter(known), status),
        f"status {status}: {text}" if status in _UNHEALTHY else text,
        lacks_nodes=status == _RUNNING_WITH_ERROR or isinstance(found, _LACKS_NODES),
    )


def is_ours(observed: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return observed.get(labels.GCP_OWNER) == wanted[labels.GCP_OWNER]


def lost_labels(given: Mapping[str, Any], observed: Mapping[str, str]) -> str:
    """Return how to restore the labels of a pool.

    `given` are the arguments of its creation.
    """
    pool, (_, project, _, location, _, cluster) = (
        given["node_pool"],
        given["parent"].split("/"),
    )
    wanted = pool["config"]["resource_labels"]
    # The command replaces all labels.
    kept = {**observed, **wanted}
    pairs = ",".join(f"{key}={kept[key]}" for key in sorted(kept))
    command = shlex.join(
        [
            *("gcloud", "container", "node-pools", "update", pool["name"]),
            *(f"--cluster={cluster}", f"--location={location}"),
            *(f"--project={project}", f"--labels={pairs}"),
        ]
    )
    owner = f"{labels.GCP_OWNER}={wanted[labels.GCP_OWNER]}"
    return (
        f"pool {pool['name']} does not have the label {owner}, so it is neither changed "
        f"nor deleted; restore with `{command}`"
    )


def mark(observed: Mapping[str, str]) -> str:
    """Describe the owner mark in the labels."""
    owner = observed.get(labels.GCP_OWNER, "")
    return (
        f'its label {labels.GCP_OWNER} is "{owner}"'
        if owner
        else f"it has no label {labels.GCP_OWNER}"
    )
