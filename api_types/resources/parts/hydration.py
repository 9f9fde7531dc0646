"""Network access and placement of the Jobs that stage a ModelCache."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.resources.parts.base_types import (
    Flag,
    Name253,
    NonEmpty,
    ResourceModel,
    Whole,
)

ProxyUrl = Annotated[NonEmpty, Field(max_length=512)]


class KeyReference(ResourceModel):
    """One key of a Secret or ConfigMap in the cache's namespace.

    It is copied to each cluster during staging, then removed.
    """

    name: Name253
    """Name of the object."""
    key: Name253
    """Key within the object."""


class Proxy(ResourceModel):
    """The proxy between a cluster and the hub."""

    http: ProxyUrl | None = None
    """Proxy for http URLs, such as `http://proxy.acme.example:3128`: `HTTP_PROXY`."""
    https: ProxyUrl | None = None
    """Proxy for https URLs: `HTTPS_PROXY`."""
    url_secret: KeyReference | None = None
    """URL with credentials for both protocols, instead of `http` and `https`."""
    no_proxy: (
        Annotated[tuple[Name253, ...], Field(min_length=1, max_length=64)] | None
    ) = None
    """Hosts without the proxy: `NO_PROXY`."""


class CaBundle(ResourceModel):
    """All trusted certificate authorities, in PEM.

    Exactly one source.

    They replace the authorities of the image.
    """

    config_map_key_ref: KeyReference | None = None
    """A key of a ConfigMap."""
    secret_key_ref: KeyReference | None = None
    """A key of a Secret."""


class ImagePullSecret(ResourceModel):
    """A docker-config Secret in the cache's namespace.

    It is copied to each cluster during staging, then removed.
    """

    name: Name253
    """Name of the Secret."""


class PodToleration(ResourceModel):
    """Lets a pod run on nodes with a taint, as in Kubernetes."""

    refused_fields: ClassVar[dict[str, str]] = {
        "tolerationSeconds": "unknown field; an evicted Job is started again"
    }

    key: Annotated[str, Field(max_length=317)] | None = None
    """Taint key; absent with Exists matches every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Exists ignores the value."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """Absent equals empty."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Absent matches every effect."""


class Hydration(ResourceModel):
    """Network access and placement of the Jobs that fill the volumes."""

    proxy: Proxy | None = None
    """Absent: no proxy."""
    ca_bundle: CaBundle | None = None
    """Absent: the certificate authorities of the image."""
    image_pull_secrets: (
        Annotated[tuple[ImagePullSecret, ...], Field(min_length=1, max_length=4)] | None
    ) = None
    """For the image of the Job."""
    service_account_name: Name253 | None = None
    """ServiceAccount in the Job's namespace on the cluster, such as for a cloud role.

    Its token is not mounted.
    """
    timeout_seconds: Annotated[Whole, Field(ge=1, le=3600)] | None = None
    """Timeout for responses of the hub; absent: 10.

    HuggingFace only.

    It sets `HF_HUB_DOWNLOAD_TIMEOUT` and `HF_HUB_ETAG_TIMEOUT`.
    """
    disable_xet: Flag = False
    """True downloads by HTTP only, for proxies that block Xet storage.

    HuggingFace only.

    It sets `HF_HUB_DISABLE_XET`.
    """
    tolerations: (
        Annotated[tuple[PodToleration, ...], Field(min_length=1, max_length=16)] | None
    ) = None
    """For clusters whose nodes all have taints."""
