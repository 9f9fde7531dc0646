"""ModelCache: weights, staged once per matching cluster on storage that all its pods can mount."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.resources.parts.base_types import Flag, LabelSelector, Manifest, NonEmpty, ResourceModel, Whole
from api_types.resources.status import ModelCacheStatus

SizeGib = Annotated[Whole, Field(ge=1, le=100_000)]


class AuthSecret(ResourceModel):
    """The token for a gated model: a Secret of the cache's namespace."""

    name: NonEmpty
    """Name of the Secret."""
    key: str = "HF_TOKEN"
    """Key within the Secret."""


class HuggingFaceModel(ResourceModel):
    """A repository of the Hugging Face hub."""

    repo: NonEmpty
    """`owner/name`, or `name`."""
    revision: str | None = None
    """Branch, tag or commit; absent means the repository's default branch."""
    auth_secret: AuthSecret | None = None
    """Token; copied to each cluster while it stages, removed afterwards."""
    size_gib: SizeGib = Field(alias="sizeGiB")
    """Volume size per cluster, in GiB."""


class OciModel(ResourceModel):
    """A model packed as an OCI artefact."""

    image: NonEmpty
    """Reference; a tag is resolved to a digest once."""
    pull_secret: NonEmpty | None = None
    """docker-config Secret of the cache's namespace."""
    plain_http: Flag = Field(default=False, alias="plainHTTP")
    """True speaks HTTP to the registry."""
    size_gib: SizeGib = Field(alias="sizeGiB")
    """Volume size per cluster, in GiB; twice the pack unless scratch is on the node."""
    scratch: Literal["claim", "node"] = "claim"
    """Where the pack is unpacked."""


class ModelCacheSpec(ResourceModel):
    """Which weights, and where."""

    source: Literal["HuggingFace", "OCI"]
    """Which of the blocks applies."""
    hugging_face: HuggingFaceModel | None = None
    """Needed for HuggingFace."""
    oci: OciModel | None = None
    """Needed for OCI."""
    cluster_selector: LabelSelector | None = None
    """Which clusters stage it; absent means all. Also narrows where its users may be placed."""

    @property
    def size_gib(self) -> int:
        """Volume size per cluster, in GiB, of the source in use; 0 when its block is missing."""
        block = self.hugging_face if self.source == "HuggingFace" else self.oci
        return block.size_gib if block else 0


class ModelCache(Manifest):
    """Staged weights."""

    kind: Literal["ModelCache"] = "ModelCache"
    """Always ModelCache."""
    spec: ModelCacheSpec
    """Which weights, and where."""
    status: ModelCacheStatus | None = None
    """What the control plane reports."""
