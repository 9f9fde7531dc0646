"""LoRA adapters of an engine: ModelCaches beside the one with the model."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.limits import ADAPTERS_MAX, MODEL_NAMES_MAX
from api_types.resources.parts.base_types import MapKeys, Name253, ResourceModel

ModelName = Annotated[str, Field(min_length=1, max_length=253)]


class AdapterCacheRef(ResourceModel):
    """A ModelCache of the same namespace, mounted read-only at `/mnt/adapters/` and the name of the adapter in every pod of the engine."""

    name: Name253
    """Name of the ModelCache."""


class Adapter(ResourceModel):
    """One LoRA adapter."""

    name: Annotated[str, Field(min_length=1, max_length=48)]
    """The name under which requests ask for it: a DNS label."""
    model_cache_ref: AdapterCacheRef
    """Staged weights of the adapter; replicas are placed only where every one of these caches may be staged."""
    load: Literal["Mount", "VLLM"] = "Mount"
    """Mount: the engine finds the files and is told nothing. VLLM: `--enable-lora --lora-modules` are added to args without a command."""
    model_names: Annotated[tuple[ModelName, ...], Field(min_length=1, max_length=MODEL_NAMES_MAX)] | None = None
    """Further names under which requests ask for it, such as `acme/support:2026`; the endpoint picker replaces them by `name`."""


Adapters = Annotated[tuple[Adapter, ...], Field(min_length=1, max_length=ADAPTERS_MAX), MapKeys(("name",), "adapter")]
