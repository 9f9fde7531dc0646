"""The desired objects of one cluster, and all problems of rejected objects."""

from collections.abc import Sequence
from dataclasses import dataclass

from activities.clouds.desired.graph import DesiredObject

INVALID_INPUT = "InvalidInput"
INVALID_NODE_POOL = "InvalidNodePool"
WAITING_FOR_CLASSES = "WaitingForClasses"
# Reasons of warnings about checks before the creation.
CHECK_SKIPPED = "CheckSkipped"
MISSING_PERMISSION = "PermissionDenied"
QUOTA = "QuotaExceeded"


@dataclass(frozen=True)
class PlanProblem:
    """A rejection or a warning. `at` names the pool, and is empty for the cluster."""

    reason: str
    at: str
    text: str


@dataclass(frozen=True)
class Desired:
    """The objects of a cluster in the order of creation.

    A rejected pool has no objects.
    """

    objects: tuple[DesiredObject, ...]
    refused: tuple[PlanProblem, ...] = ()
    warnings: tuple[PlanProblem, ...] = ()


def refused_cluster(refused: Sequence[PlanProblem]) -> bool:
    """Return True if no object is created, because the cloud would reject one.

    This is checked before anything costs money.
    """
    return any(problem.reason == INVALID_INPUT for problem in refused)
