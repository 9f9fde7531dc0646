"""Disruptions of engines: rollouts, drains, evictions, and how engines stop."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.resources.parts import misplaced
from api_types.resources.parts.base_types import (
    Flag,
    IntOrPercent,
    ResourceModel,
    Whole,
)

PRE_STOP_SECONDS_MAX = 3600
GRACE_SECONDS_MAX = 7200


class Rollout(ResourceModel):
    """How replicas get a changed template."""

    type: Literal["Rolling", "AllAtOnce"] = "Rolling"
    """Rolling changes a few replicas at a time."""
    max_unavailable: IntOrPercent | None = None
    """Replicas that may be unavailable at once, rounded down.

    Absent: the fleet's setting.
    """
    max_surge: IntOrPercent = 0
    """Replicas that may exist in addition to the wanted count, rounded up."""
    partition: Annotated[Whole, Field(ge=0)] = 0
    """Replicas of lower rank keep the old template; rank is the order by cluster and index."""
    paused: Flag = False
    """True pauses the rollout."""


class DrainBudget(ResourceModel):
    """How fast replicas move off a drained cluster."""

    refused_fields: ClassVar[Mapping[str, str]] = misplaced.IN_DRAIN_BUDGET

    max_unavailable: IntOrPercent = "100%"
    """Replicas that may be evicted at once before their replacement is ready."""
    deadline_seconds: Annotated[Whole, Field(ge=0)] | None = None
    """Time after which the remaining replicas are evicted; absent means no deadline."""


class EngineDrain(ResourceModel):
    """How the pods of an engine stop on a rollout, a scale-down or a node drain."""

    pre_stop_seconds: Annotated[Whole, Field(ge=0, le=PRE_STOP_SECONDS_MAX)] | None = (
        None
    )
    """How long a deleted pod continues to serve, while it gets no new requests.

    Absent or 0 stops it immediately.
    """
    grace_seconds: Annotated[Whole, Field(ge=1, le=GRACE_SECONDS_MAX)] | None = None
    """Time from the deletion after which the pod is killed.

    Absent adds the platform's grace period to preStopSeconds.
    """


class Disruption(ResourceModel):
    """The minimum that node drains and other evictions leave of a replica."""

    min_available: IntOrPercent | None = None
    """Available copies of each engine that evictions leave; a percentage is rounded up.

    Absent or 0 allows every eviction.
    """


def copies_kept(min_available: int | str, copies: int) -> int:
    """Return the number of an engine's copies that `minAvailable` keeps.

    A percentage is rounded up, as in Kubernetes.
    """
    if isinstance(min_available, int):
        return min_available
    return -(-int(min_available.removesuffix("%")) * copies // 100)
