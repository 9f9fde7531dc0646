"""Data parallelism within a pod, and the queue in front of the pods."""

from typing import Annotated

from pydantic import Field

from api_types.limits import RANKS_MAX
from api_types.resources.parts.base_types import ResourceModel, Whole


class DataParallel(ResourceModel):
    """Several ranks of an engine in each serving pod, to each of which the endpoint picker sends requests."""

    size: Annotated[Whole, Field(ge=1, le=RANKS_MAX)]
    """Ranks per serving pod; rank n listens on the engine's port plus n. The same for all engines of a replica."""


class FlowControl(ResourceModel):
    """Requests wait in the endpoint picker while all pods are busy, instead of in the pods."""

    max_requests: Annotated[Whole, Field(ge=1, le=1_000_000)] | None = None
    """Requests that may be waiting at once; further ones are refused. Absent means no limit."""
    queue_seconds: Annotated[Whole, Field(ge=1, le=3600)] | None = None
    """After this time a waiting request is refused; absent leaves it to the endpoint picker."""
