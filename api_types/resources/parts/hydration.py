"""How the Jobs of a ModelCache reach hub or registry from a company's network, and on which nodes they may run."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.resources.parts.base_types import Flag, Name253, NonEmpty, ResourceModel, Whole

ProxyUrl = Annotated[NonEmpty, Field(max_length=512)]


class KeyReference(ResourceModel):
    """One key of a Secret or ConfigMap of the cache's namespace; copied to each cluster while it stages, removed afterwards."""

    name: Name253
    """Its name."""
    key: Name253
    """Key within it."""


class Proxy(ResourceModel):
    """The proxy between a cluster and the hub."""

    http: ProxyUrl | None = None
    """For addresses with http, such as `http://proxy.acme.example:3128`: `HTTP_PROXY`."""
    https: ProxyUrl | None = None
    """For addresses with https: `HTTPS_PROXY`."""
    url_secret: KeyReference | None = None
    """Address with credentials, instead of `http` and `https`: used for both."""
    no_proxy: Annotated[tuple[Name253, ...], Field(min_length=1, max_length=64)] | None = None
    """What is reached directly: `NO_PROXY`."""


class CaBundle(ResourceModel):
    """Certificates in PEM, of all authorities that are trusted: those of the image do not count beside them. Exactly one source."""

    config_map_key_ref: KeyReference | None = None
    """A key of a ConfigMap."""
    secret_key_ref: KeyReference | None = None
    """A key of a Secret."""


class ImagePullSecret(ResourceModel):
    """A docker-config Secret of the cache's namespace; copied to each cluster while it stages, removed afterwards."""

    name: Name253
    """Its name."""


class PodToleration(ResourceModel):
    """Lets a pod run on nodes with a taint, as in Kubernetes."""

    refused_fields: ClassVar[dict[str, str]] = {"tolerationSeconds": "unknown field; a Job that is evicted is started again"}

    key: Annotated[str, Field(max_length=317)] | None = None
    """Taint key; absent with Exists matches every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Exists ignores the value."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """Absent equals empty."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Absent matches every effect."""


class Hydration(ResourceModel):
    """How the Jobs that fill the volumes reach the source, and where they run."""

    proxy: Proxy | None = None
    """Absent: no proxy."""
    ca_bundle: CaBundle | None = None
    """Absent: the authorities of the image."""
    image_pull_secrets: Annotated[tuple[ImagePullSecret, ...], Field(min_length=1, max_length=4)] | None = None
    """For the image of the Job."""
    service_account_name: Name253 | None = None
    """One on the cluster, in the namespace of the Job, such as one with a cloud role; its token is not mounted."""
    timeout_seconds: Annotated[Whole, Field(ge=1, le=3600)] | None = None
    """How long the hub may be silent: `HF_HUB_DOWNLOAD_TIMEOUT` and `HF_HUB_ETAG_TIMEOUT`. Absent: 10. HuggingFace only."""
    disable_xet: Flag = False
    """True downloads by HTTP alone, where a proxy does not let Xet storage through: `HF_HUB_DISABLE_XET`. HuggingFace only."""
    tolerations: Annotated[tuple[PodToleration, ...], Field(min_length=1, max_length=16)] | None = None
    """For clusters whose nodes all have taints."""
