"""Data parallelism within a pod, and the queue and prefix cache of the endpoint picker."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.limits import RANKS_MAX
from api_types.resources.parts.base_types import ResourceModel, Whole

LoadBalancing = Literal["Internal", "Hybrid", "External"]


class DataParallel(ResourceModel):
    """Several ranks of an engine in each serving pod.

    The endpoint picker sends requests to each of them.
    """

    size: Annotated[Whole, Field(ge=1, le=RANKS_MAX)]
    """Ranks per pod; all engines of a replica have the same number of ports.

    Unless loadBalancing is Internal or Hybrid, rank n listens on the engine's port plus
    n.
    """
    load_balancing: LoadBalancing | None = None
    """How requests reach the ranks of a Leader with Workers.

    Internal: the Leader's port serves all ranks.

    Hybrid: each pod's port serves the ranks of the pod, also in Workers.

    External: each rank has a port, also in Workers.

    Absent: each rank of the Leader has a port, and Workers serve no requests.
    """

    @property
    def ports(self) -> int:
        """Return the number of ports of each serving pod."""
        return 1 if self.load_balancing in ("Internal", "Hybrid") else self.size

    @property
    def followers_serve(self) -> bool:
        """Return whether requests reach Workers too."""
        return self.load_balancing in ("Hybrid", "External")


class FlowControl(ResourceModel):
    """Requests wait in the endpoint picker while all pods are busy, instead of in the pods."""

    max_requests: Annotated[Whole, Field(ge=1, le=1_000_000)] | None = None
    """Maximum number of waiting requests; more are rejected. Absent means no limit."""
    queue_seconds: Annotated[Whole, Field(ge=1, le=3600)] | None = None
    """Time after which a waiting request is rejected; absent: the picker's default."""


class PrefixCache(ResourceModel):
    """How the endpoint picker finds pods with a prompt prefix in their KV cache."""

    mode: Literal["Approximate", "Precise"] = "Approximate"
    """Approximate: from earlier requests.

    Precise: from KV events of the engines.

    Precise requires that the engines publish the events over ZMQ.
    """
    model_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """With Precise: the model name in requests, for the tokenizer and the event topic.
    """
    tokenizer_url: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """With Precise: URL of a `vllm launch render`, such as `http://render.ml.svc:8000`.
    """
    events_port: Annotated[Whole, Field(ge=1024, le=65535)] | None = None
    """With Precise: port for the events of every serving pod; absent means 5557."""
