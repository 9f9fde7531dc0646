"""What is wanted at a cloud, and what of it cannot be had: the result for one cluster, with all problems at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from activities.clouds.graph import DesiredObject

INVALID_INPUT = "InvalidInput"
INVALID_NODE_POOL = "InvalidNodePool"
WAITING_FOR_CLASSES = "WaitingForClasses"
# Warnings of what is checked before anything is created.
CHECK_SKIPPED = "CheckSkipped"
MISSING_PERMISSION = "PermissionDenied"
QUOTA = "QuotaExceeded"


@dataclass(frozen=True)
class Problem:
    """Something that is refused, or a warning. `at` says where: a pool, or empty for the cluster."""

    reason: str
    at: str
    text: str


@dataclass(frozen=True)
class Desired:
    """The objects of a cluster in the order in which they are created. A pool that is refused has no objects; the others do."""

    objects: tuple[DesiredObject, ...]
    refused: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def refused_cluster(refused: Sequence[Problem]) -> bool:
    """Whether nothing is created at all: what the cloud would refuse is found before anything costs money."""
    return any(problem.reason == INVALID_INPUT for problem in refused)
