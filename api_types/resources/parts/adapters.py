"""LoRA adapters of an engine: ModelCaches in addition to the model's."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.limits import ADAPTERS_MAX, MODEL_NAMES_MAX
from api_types.resources.parts.base_types import MapKeys, Name253, ResourceModel

ModelName = Annotated[str, Field(min_length=1, max_length=253)]


class AdapterCacheRef(ResourceModel):
    """A ModelCache of the same namespace.

    Each pod of the engine mounts it read-only at `/mnt/adapters/` and the name of the
    adapter.
    """

    name: Name253
    """Name of the ModelCache."""


class Adapter(ResourceModel):
    """One LoRA adapter."""

    name: Annotated[str, Field(min_length=1, max_length=48)]
    """The name of the adapter in requests: a DNS label."""
    model_cache_ref: AdapterCacheRef
    """Staged weights.

    Replicas are placed only on clusters that may stage all these caches.
    """
    load: Literal["Mount", "VLLM"] = "Mount"
    """Mount: the adapter is only mounted.

    VLLM: flags are added to args.

    The flags are `--enable-lora --lora-modules`; the container must not have a command.
    """
    model_names: (
        Annotated[
            tuple[ModelName, ...], Field(min_length=1, max_length=MODEL_NAMES_MAX)
        ]
        | None
    ) = None
    """Further names for requests, such as `acme/support:2026`.

    The endpoint picker replaces them by `name`.
    """


Adapters = Annotated[
    tuple[Adapter, ...],
    Field(min_length=1, max_length=ADAPTERS_MAX),
    MapKeys(("name",), "adapter"),
]
