"""The common parts of engines in a ModelDeployment and in a ModelReplica."""

from typing import Annotated, Literal, TypeVar

from pydantic import Field

from api_types.limits import ENGINES_MAX, MEMBERS_MAX
from api_types.resources.parts.base_types import (
    Advice,
    MapKeys,
    Name63,
    ResourceModel,
    Whole,
)
from api_types.resources.parts.parallel import FlowControl, PrefixCache

Role = Literal["Standalone", "Leader", "Worker"]
Phase = Literal["Prefill", "Decode"]
ServingMode = Literal["Unified", "PrefillDecode"]

EngineName = Name63
"""1 to 63 characters. A rule checks that it is a DNS label."""


Copies = Annotated[Whole, Field(ge=1, le=64)]
PodsPerNode = Annotated[Whole, Field(ge=1, le=64)]

MemberT = TypeVar("MemberT")
Members = Annotated[
    tuple[MemberT, ...],
    Field(min_length=1, max_length=MEMBERS_MAX),
    Advice(
        too_few="must be one Standalone member, or one Leader and one Worker; got none",
        too_many="at most 2 members; raise worker.nodes to add followers",
    ),
]

EngineT = TypeVar("EngineT")
Engines = Annotated[
    tuple[EngineT, ...],
    Field(min_length=1, max_length=ENGINES_MAX),
    MapKeys(("name",), "engine"),
    Advice(
        too_few="needs 1 to 8 engines, got {got}",
        too_many="needs 1 to 8 engines, got {got}",
    ),
]


class Serving(ResourceModel):
    """The division of work between the engines of a replica."""

    mode: ServingMode = "Unified"
    """PrefillDecode splits prompt and generation over two engines."""
    flow_control: FlowControl | None = None
    """Queue for requests while all pods are busy; absent leaves the queue to the pods.
    """
    prefix_cache: PrefixCache | None = None
    """How the endpoint picker locates cached prompts; absent means Approximate."""


class Worker(ResourceModel):
    """The followers of a gang."""

    nodes: Annotated[Whole, Field(ge=1, le=63)]
    """Follower pods, one per node."""
