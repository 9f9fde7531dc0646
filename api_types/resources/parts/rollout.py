"""The budgets of a rollout and of a drain."""

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
