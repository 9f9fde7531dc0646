"""Secret and ConfigMap: two core kinds that `apply` writes into the secret store.

They never reach Temporal, so their values must not appear in a repr, an error or a log
line either.
"""

from typing import Literal

from pydantic import Field

from api_types.resources.parts.base_types import Flag, Manifest, ResourceModel

CORE_VERSION = "v1"


class NoSpec(ResourceModel):
    """An empty spec: these kinds have data instead."""


class DataManifest(Manifest):
    """The base class of Secret and ConfigMap."""

    api_version: Literal["v1"] = "v1"
    """Always v1."""
    spec: NoSpec = Field(default=NoSpec(), exclude=True, repr=False)
    """These kinds have none."""
    immutable: Flag | None = None
    """Stored as written; the store does not enforce it."""


class Secret(DataManifest):
    """Values that only activities may read."""

    kind: Literal["Secret"] = "Secret"
    """Always Secret."""
    type: str = "Opaque"
    """The meaning of the keys, such as `kubernetes.io/dockerconfigjson`."""
    data: dict[str, str] | None = Field(default=None, repr=False)
    """Values in base64."""
    string_data: dict[str, str] | None = Field(default=None, repr=False)
    """Plain values; each overrides `data`."""


class ConfigMap(DataManifest):
    """Values that are not secret."""

    kind: Literal["ConfigMap"] = "ConfigMap"
    """Always ConfigMap."""
    data: dict[str, str] | None = Field(default=None, repr=False)
    """Text values."""
    binary_data: dict[str, str] | None = Field(default=None, repr=False)
    """Values in base64."""
