"""Data parallelism within a pod, and what the endpoint picker does for its pods: the queue, and whose cache it knows."""

from typing import Annotated, Literal

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


class PrefixCache(ResourceModel):
    """How the endpoint picker knows which pods hold the beginning of a prompt in their KV cache."""

    mode: Literal["Approximate", "Precise"] = "Approximate"
    """Approximate: from earlier requests. Precise: from the KV events of the engines, which have to publish them over ZMQ."""
    model_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """With Precise: the name under which requests ask for the model; the tokenizer and the topic of the events have the same."""
    tokenizer_url: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """With Precise: address of a `vllm launch render` for the model, such as `http://render.ml.svc:8000`."""
    events_port: Annotated[Whole, Field(ge=1024, le=65535)] | None = None
    """With Precise: port on which every serving pod publishes its events; absent means 5557."""
