"""The next step of a person for each problem of a cloud object. Pure."""

from collections.abc import Mapping

from api_types import labels
from api_types.errors import (
    CapacityUnavailable,
    CloudObjectBroken,
    CredentialsInvalid,
    InvalidInput,
    NameConflict,
    OwnerMarkMissing,
    PermissionDenied,
    QuotaExceeded,
    ReplaceRequired,
    Unsupported,
    WorkerClockWrong,
)
from api_types.messages.clouds import CLUSTER_KEY
from workflows.cloud_cluster.state import NOT_OBSERVED, InventoryEntry

_CHANGE_SPEC = "change the spec as the message says"
_OTHER_POOL = (
    "set the old value again, or add a pool under another name and remove this one"
)
_SAME_CLUSTER = "set the old value again, or create another cluster and delete this one"
_OTHER_CLUSTER = "create another cluster, and delete this one"
_AUTOMATIC = "none: Modelplane tries again"
_STEPS: Mapping[str, str] = {
    QuotaExceeded.__name__: "request a higher quota from the cloud, or lower the counts",
    CapacityUnavailable.__name__: (
        "wait for machines, or use other zones, another machine type or another "
        "capacity reservation"
    ),
    PermissionDenied.__name__: "grant the permission that the message names",
    CredentialsInvalid.__name__: "store a valid credential",
    WorkerClockWrong.__name__: "correct the clock of the worker",
    InvalidInput.__name__: _CHANGE_SPEC,
    Unsupported.__name__: "use another spec, or another release of Modelplane",
    NameConflict.__name__: (
        "delete the other object at the cloud if nothing needs it, or rename the pool"
    ),
    OwnerMarkMissing.__name__: (
        "run the command in the message, or delete the object at the cloud"
    ),
    "InvalidNodePool": _CHANGE_SPEC,
    NOT_OBSERVED: (
        "grant the permission or restore the tags if the message names any; otherwise "
        "none: Modelplane checks again"
    ),
    "WaitingForClasses": "apply the InferenceClass that the message names",
}


# In a deletion, no other spec helps.
_OF_A_DELETION = (
    QuotaExceeded,
    PermissionDenied,
    CredentialsInvalid,
    WorkerClockWrong,
    OwnerMarkMissing,
)
_CAUSE = "remove the cause at the cloud"


def step_of_others(cluster: str) -> str:
    """Return the next step for objects of others that block a deletion."""
    return f"delete them at the cloud if nothing needs them, {_or_abandon(cluster)}"


def step_of_deletion(failure: str, cluster: str) -> str:
    """Return the next step of a person for a deletion that failed with this type."""
    if failure in {each.__name__ for each in _OF_A_DELETION}:
        step = _STEPS[failure]
    elif failure in _STEPS or failure == CloudObjectBroken.__name__:
        step = _CAUSE
    else:
        return _AUTOMATIC
    return f"{step}, {_or_abandon(cluster)}"


def _or_abandon(cluster: str) -> str:
    return (
        f"and run `modelplane retry ic/{cluster}`; or leave everything that still exists "
        f"with `modelplane annotate ic/{cluster} {labels.ABANDON}=true`, which the end of "
        "the deletion lists"
    )


def next_step(reason: str, cluster: str, entry: InventoryEntry | None = None) -> str:
    """Return the next step of a person for a problem with this reason."""
    if reason == ReplaceRequired.__name__:
        if entry is None or entry.object.pool:
            return _OTHER_POOL
        return _SAME_CLUSTER if entry.object.key == CLUSTER_KEY else _OTHER_CLUSTER
    if reason != CloudObjectBroken.__name__:
        return _STEPS.get(reason, _AUTOMATIC)
    if entry is None or entry.health is not None:
        return "remove the cause at the cloud"
    recreated = f"run `modelplane retry ic/{cluster}` to recreate it"
    if entry.held or entry.object.key != CLUSTER_KEY:
        return f"remove the cause at the cloud, or {recreated}"
    return "repair it at the cloud, or delete the InferenceCluster"
