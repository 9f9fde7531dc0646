"""ModelCache: weights, staged once per matching cluster on storage that all its pods can mount."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.resources.parts.base_types import Flag, LabelSelector, Manifest, Name253, NonEmpty, ResourceModel, Whole
from api_types.resources.parts.hydration import Hydration
from api_types.resources.status import ResourceStatus

SizeGib = Annotated[Whole, Field(ge=1, le=100_000)]
FilePatterns = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=256)], ...], Field(min_length=1, max_length=32)]
SOURCE_BLOCKS = {"HuggingFace": "huggingFace", "OCI": "oci", "S3": "s3"}
"""The block of the spec that each source needs."""
CacheClusterPhase = Literal["Pending", "Hydrating", "Ready", "Failed"]


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
    allow_patterns: FilePatterns | None = None
    """Only files that match one of these are staged, such as `*.safetensors`; `*` matches `/` too. Absent means all."""
    ignore_patterns: FilePatterns | None = None
    """Files that match one of these are not staged, such as `original/*`."""
    size_gib: SizeGib = Field(alias="sizeGiB")
    """Volume size per cluster, in GiB."""


class OciModel(ResourceModel):
    """A model packed as an OCI artifact."""

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


class S3AuthSecret(ResourceModel):
    """The key of an account: a Secret of the cache's namespace."""

    name: NonEmpty
    """Name of the Secret."""
    key: str = "credentials"
    """Key within the Secret: a credentials file as the AWS tools write it, of which the profile `default` is used."""


class S3Model(ResourceModel):
    """The objects below a prefix of a bucket, on AWS or on any server with its protocol."""

    bucket: NonEmpty
    """The bucket."""
    prefix: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """The folder of the model in the bucket; absent means all of it."""
    endpoint: Annotated[str, Field(max_length=300)] | None = None
    """Address of the server, such as `https://storage.googleapis.com`; absent means AWS in `region`."""
    region: Annotated[str, Field(max_length=63)] | None = None
    """Needed without an endpoint; with one, `us-east-1` unless given."""
    path_style: Flag = False
    """True writes the bucket behind the host and not in front of it, as most servers outside AWS want it."""
    auth_secret: S3AuthSecret | None = None
    """Key of an account; without one the Job reads as its service account, or as anyone."""
    size_gib: SizeGib = Field(alias="sizeGiB")
    """Volume size per cluster, in GiB."""


class CacheVolume(ResourceModel):
    """What kind of volume the weights are on, one per cluster."""

    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    """ReadWriteOnce: only pods on one node at a time can mount it, so it serves one engine pod per cluster, or several on one node."""
    storage_class_name: Name253 | None = None
    """The storage class on every selected cluster; absent means the one that the cluster reports for caches."""
    node_local: Flag = False
    """Each pod gets a volume of its own of `storage_class_name`, and fills it before its engine starts."""
    image: Flag = False
    """With source OCI: pods mount the image itself, which their nodes pull, so nothing is staged. Needs Kubernetes 1.33."""


class ModelCacheSpec(ResourceModel):
    """Which weights, and where."""

    source: Literal["HuggingFace", "OCI", "S3"]
    """Which of the blocks applies."""
    hugging_face: HuggingFaceModel | None = None
    """Needed for HuggingFace."""
    oci: OciModel | None = None
    """Needed for OCI."""
    s3: S3Model | None = None
    """Needed for S3."""
    volume: CacheVolume | None = None
    """Another kind of volume than one that all nodes can mount, of the class for caches."""
    cluster_selector: LabelSelector | None = None
    """Which clusters stage it; absent means all. Also narrows where its users may be placed."""
    hydration: Hydration | None = None
    """How the Jobs that stage it reach the source, and where they run."""

    @property
    def size_gib(self) -> int:
        """Volume size per cluster, in GiB, of the source in use; 0 when its block is missing."""
        block = {"HuggingFace": self.hugging_face, "OCI": self.oci, "S3": self.s3}[self.source]
        return block.size_gib if block else 0


class CacheSummary(ResourceModel):
    """Summary of staging."""

    ready: str = "0/0"
    """Ready clusters of matched clusters, such as `2/3`."""


class CacheClusterStatus(ResourceModel):
    """Staging on one cluster."""

    name: str
    """The cluster."""
    phase: CacheClusterPhase = "Pending"
    """Its phase."""
    message: str = ""
    """What it waits for, or why it failed."""
    claim_name: str = ""
    """Volume claim."""
    artifact_key: str = Field(default="", alias="artefactKey")
    """What is on the volume."""
    revision: str = ""
    """The commit or digest."""
    attempts: int = 0
    """Attempts to download."""
    started_at: str = ""
    """RFC 3339, UTC."""
    ready_at: str = ""
    """RFC 3339, UTC."""
    retained: bool = False
    """Not selected any more, and kept because a replica still mounts it."""


class ModelCacheStatus(ResourceStatus):
    """Where the weights are."""

    summary: CacheSummary | None = None
    """Summary of staging."""
    clusters: tuple[CacheClusterStatus, ...] = ()
    """One per matched cluster."""
    resolved_revision: str = ""
    """The commit or digest that every cluster stages."""


class ModelCache(Manifest):
    """Staged weights."""

    kind: Literal["ModelCache"] = "ModelCache"
    """Always ModelCache."""
    spec: ModelCacheSpec
    """Which weights, and where."""
    status: ModelCacheStatus | None = None
    """What the control plane reports."""
