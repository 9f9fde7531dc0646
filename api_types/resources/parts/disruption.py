"""What happens to pods that have to go: how an engine is stopped, and how many copies evictions must leave."""

from typing import Annotated

from pydantic import Field

from api_types.resources.parts.base_types import IntOrPercent, ResourceModel, Whole

PRE_STOP_SECONDS_MAX = 3600
GRACE_SECONDS_MAX = 7200


class EngineDrain(ResourceModel):
    """How the pods of an engine stop, whatever deletes them: a rollout, a scale-down, or the drain of a node."""

    pre_stop_seconds: Annotated[Whole, Field(ge=0, le=PRE_STOP_SECONDS_MAX)] | None = None
    """How long a serving pod goes on as before after its deletion, while no new requests are sent to it; absent or 0 stops it at once."""
    grace_seconds: Annotated[Whole, Field(ge=1, le=GRACE_SECONDS_MAX)] | None = None
    """When what still runs is killed, counted from the deletion; absent adds the platform's grace period to preStopSeconds."""


class Disruption(ResourceModel):
    """What the drain of a node, or any other eviction, must leave of a replica."""

    min_available: IntOrPercent | None = None
    """Copies of each engine that evictions leave available, a percentage rounded up; absent or 0 allows every eviction."""


def copies_kept(min_available: int | str, copies: int) -> int:
    """Give how many of an engine's copies `minAvailable` keeps; a percentage is rounded up, as Kubernetes does."""
    if isinstance(min_available, int):
        return min_available
    return -(-int(min_available.removesuffix("%")) * copies // 100)
