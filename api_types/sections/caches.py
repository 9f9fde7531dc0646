"""Settings of caches: staging, model packs, buckets, and the networks of registries."""

from pydantic import Field, IPvAnyNetwork

from api_types.pins import images
from api_types.sections.base import SettingsSection
from api_types.setting_types import (
    Image,
    OptionalUrl,
    Seconds,
)


class CacheSettings(SettingsSection):
    """Staging of caches."""

    hydration_image: Image = Field(
        default=images.HYDRATION,
        description=(
            "Image of the Job that fills a cache from the Hugging Face hub. The "
            "Job installs the pinned `huggingface_hub` if the image does not "
            "contain it. The container in which followers of a gang wait for their "
            "leader has the same image, which must contain `python3`."
        ),
    )
    hub_endpoint: OptionalUrl = Field(
        default="",
        description=(
            "Address of a mirror of the Hugging Face hub, for the worker and for "
            "clusters. Empty: the public hub."
        ),
    )
    pip_index_url: OptionalUrl = Field(
        default="",
        description=(
            "Package index from which the Job installs `huggingface_hub`, as "
            "clusters reach it. The hashes are pinned. Empty: the public index."
        ),
    )
    mount_read_only: bool = Field(
        default=False,
        description="Mount caches read-only. Many engines write files beside the weights.",
    )
    max_attempts: int = Field(
        default=0,
        ge=0,
        description=(
            "Number of downloads per cluster. 0: no limit, with pauses of up to "
            "30 minutes."
        ),
    )
    active_deadline_seconds: Seconds = Field(
        default=21600,
        description="Deadline of one download in seconds. 0: no deadline.",
    )
    evict_grace: Seconds = Field(
        default=600,
        description=(
            "Time in seconds for which a cluster that is no longer selected keeps "
            "its volume."
        ),
    )


class OciSettings(SettingsSection):
    """Unpacking of model packs."""

    kit_image: Image = Field(
        default=images.KIT,
        description="Image of the Job that unpacks model packs.",
    )
    allow_plain_http: bool = Field(
        default=False,
        description="Allow `plainHTTP` in caches, which reads a registry without TLS.",
    )


class S3Settings(SettingsSection):
    """Access to buckets."""

    allow_plain_http: bool = Field(
        default=False,
        description="Allow bucket endpoints in caches that begin with `http://`.",
    )


class OutboundSettings(SettingsSection):
    """Destinations of the worker's requests for tenants, besides public addresses."""

    private_addresses: tuple[IPvAnyNetwork, ...] = Field(
        default=(),
        description=(
            'Private networks, such as `["10.20.0.0/16"]`, in which tenants\' '
            "registries and token servers may be. Metadata services are never "
            "allowed."
        ),
    )
