"""What engines of a ModelDeployment and engines of a ModelReplica have in common."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.resources.parts.base_types import Name63, ResourceModel, Whole

Role = Literal["Standalone", "Leader", "Worker"]
Phase = Literal["Prefill", "Decode"]
ServingMode = Literal["Unified", "PrefillDecode"]

EngineName = Name63
"""1 to 63 characters; that it is a DNS label is checked by rule."""


class Serving(ResourceModel):
    """How the engines of a replica divide the work."""

    mode: ServingMode = "Unified"
    """PrefillDecode splits prompt and generation over two engines."""


class Worker(ResourceModel):
    """The followers of a gang."""

    nodes: Annotated[Whole, Field(ge=1, le=63)]
    """Follower pods, one per node."""
