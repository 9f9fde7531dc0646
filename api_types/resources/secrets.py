"""Secret and ConfigMap: the two core kinds that `apply` takes, to put them into the secret store.

They never reach Temporal, so their values must not show up in a repr, an error or a log line either.
"""

from typing import Literal

from pydantic import Field

from api_types.resources.parts.base_types import Flag, Manifest, ResourceModel

CORE_VERSION = "v1"


class NoSpec(ResourceModel):
    """An empty spec: these kinds have data instead."""


class Stored(Manifest):
    """The base of both."""

    api_version: Literal["v1"] = "v1"
    """Always v1."""
    spec: NoSpec = Field(default=NoSpec(), exclude=True, repr=False)
    """These kinds have none."""
    immutable: Flag | None = None
    """Kept as given; the store does not enforce it."""


class Secret(Stored):
    """Values that only activities may read."""

    kind: Literal["Secret"] = "Secret"
    """Always Secret."""
    type: str = "Opaque"
    """What the keys mean, such as `kubernetes.io/dockerconfigjson`."""
    data: dict[str, str] | None = Field(default=None, repr=False)
    """Values in base64."""
    string_data: dict[str, str] | None = Field(default=None, repr=False)
    """Values as they are; each wins over `data`."""


class ConfigMap(Stored):
    """Values that are no secret."""

    kind: Literal["ConfigMap"] = "ConfigMap"
    """Always ConfigMap."""
    data: dict[str, str] | None = Field(default=None, repr=False)
    """Text values."""
    binary_data: dict[str, str] | None = Field(default=None, repr=False)
    """Values in base64."""
