"""ModelCache: weights, staged once per matching cluster on shared storage."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.resources.parts.base_types import (
    Flag,
    LabelSelector,
    Manifest,
    Name253,
    NonEmpty,
    ResourceModel,
    Whole,
)
from api_types.resources.parts.hydration import Hydration
from api_types.resources.status import ResourceStatus

SizeGib = Annotated[Whole, Field(ge=1, le=100_000)]
FilePatterns = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=256)], ...],
    Field(min_length=1, max_length=32),
]
SOURCE_BLOCKS = {"HuggingFace": "huggingFace", "OCI": "oci", "S3": "s3"}
"""The block of the spec that each source requires."""
CacheClusterPhase = Literal["Pending", "Hydrating", "Ready", "Failed"]


class AuthSecret(ResourceModel):
    """The token for a gated model: a Secret in the cache's namespace."""

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
    """Token; copied to each cluster during staging, then removed."""
    allow_patterns: FilePatterns | None = None
    """Only files that match one of these patterns are staged, such as `*.safetensors`.

    `*` matches `/` too. Absent means all files.
    """
    ignore_patterns: FilePatterns | None = None
    """Files that match one of these patterns are not staged, such as `original/*`."""
    size_gib: SizeGib = Field(alias="sizeGiB")
    """Volume size per cluster, in GiB."""


class OciModel(ResourceModel):
    """A model packed as an OCI artifact."""

    image: NonEmpty
    """Reference; a tag is resolved to a digest once."""
    pull_secret: NonEmpty | None = None
    """docker-config Secret in the cache's namespace."""
    plain_http: Flag = Field(default=False, alias="plainHTTP")
    """True uses HTTP for the registry."""
    size_gib: SizeGib = Field(alias="sizeGiB")
    """Volume size per cluster, in GiB; twice the pack unless scratch is on the node."""
    scratch: Literal["claim", "node"] = "claim"
    """Storage on which the pack is unpacked."""


class S3AuthSecret(ResourceModel):
    """The credentials of an account: a Secret in the cache's namespace."""

    name: NonEmpty
    """Name of the Secret."""
    key: str = "credentials"
    """Key within the Secret: a credentials file in AWS format.

    Its profile `default` is used.
    """


class S3Model(ResourceModel):
    """The objects below a prefix of a bucket, on AWS or a compatible server."""

    bucket: NonEmpty
    """Name of the bucket."""
    prefix: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """The folder of the model in the bucket; absent means the whole bucket."""
    endpoint: Annotated[str, Field(max_length=300)] | None = None
    """URL of the server, such as `https://storage.googleapis.com`.

    Absent means AWS in `region`.
    """
    region: Annotated[str, Field(max_length=63)] | None = None
    """Required without an endpoint; with one, `us-east-1` by default."""
    path_style: Flag = False
    """True puts the bucket into the path instead of the host name.

    Most servers outside AWS require it.
    """
    auth_secret: S3AuthSecret | None = None
    """Credentials; without them the Job reads as its service account, or anonymously.
    """
    size_gib: SizeGib = Field(alias="sizeGiB")
    """Volume size per cluster, in GiB."""


class CacheVolume(ResourceModel):
    """The type of the volume with the weights, one per cluster."""

    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    """ReadWriteOnce: only pods on one node at a time can mount it.

    It serves one engine pod per cluster, or several pods on one node.
    """
    storage_class_name: Name253 | None = None
    """The storage class on every selected cluster.

    Absent means the class that the cluster reports for caches.
    """
    node_local: Flag = False
    """Each pod gets its own volume of `storage_class_name`.

    It fills the volume before its engine starts.
    """
    image: Flag = False
    """With source OCI: pods mount the image itself, which their nodes pull.

    Nothing is staged. Needs Kubernetes 1.33.
    """


class ModelCacheSpec(ResourceModel):
    """The source of the weights, and the clusters that stage them."""

    source: Literal["HuggingFace", "OCI", "S3"]
    """The block that applies."""
    hugging_face: HuggingFaceModel | None = None
    """Required for HuggingFace."""
    oci: OciModel | None = None
    """Required for OCI."""
    s3: S3Model | None = None
    """Required for S3."""
    volume: CacheVolume | None = None
    """The volume type; absent means a volume that all nodes can mount."""
    cluster_selector: LabelSelector | None = None
    """The clusters that stage it; absent means all.

    Also restricts placement of its users.
    """
    hydration: Hydration | None = None
    """How the staging Jobs reach the source, and where they run."""

    @property
    def size_gib(self) -> int:
        """Volume size per cluster, in GiB, of the source; 0 if its block is missing."""
        block = {"HuggingFace": self.hugging_face, "OCI": self.oci, "S3": self.s3}[
            self.source
        ]
        return block.size_gib if block else 0


class CacheSummary(ResourceModel):
    """Summary of staging."""

    ready: str = "0/0"
    """Ready clusters and matched clusters, such as `2/3`."""


class CacheClusterStatus(ResourceModel):
    """Staging on one cluster."""

    name: str
    """The cluster."""
    phase: CacheClusterPhase = "Pending"
    """Phase of staging."""
    message: str = ""
    """Reason for waiting or failure."""
    claim_name: str = ""
    """Volume claim."""
    artifact_key: str = Field(default="", alias="artefactKey")
    """Key of the artifact on the volume."""
    revision: str = ""
    """Commit or digest."""
    attempts: int = 0
    """Download attempts."""
    started_at: str = ""
    """RFC 3339, UTC."""
    ready_at: str = ""
    """RFC 3339, UTC."""
    retained: bool = False
    """No longer selected, and kept because a replica still mounts it."""


class ModelCacheStatus(ResourceStatus):
    """The observed state of staging."""

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
    """The source of the weights, and the clusters that stage them."""
    status: ModelCacheStatus | None = None
    """The state that the control plane reports."""
