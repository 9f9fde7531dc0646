"""The stopping of engines, and the copies that evictions leave."""

from typing import Annotated

from pydantic import Field

from api_types.resources.parts.base_types import IntOrPercent, ResourceModel, Whole

PRE_STOP_SECONDS_MAX = 3600
GRACE_SECONDS_MAX = 7200


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
