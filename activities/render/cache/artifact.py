"""The artifact that a ModelCache stages: source, origin and pinned revision.

Equal content has an equal key. A volume is named after the key and never holds two
revisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from activities.render.inputs.facts import CacheInput
from activities.render.inputs.findings import Findings
from activities.render.inputs.reader import Reader, check_encodable
from api_types import names
from api_types.digests import content_hash
from api_types.model_sources import (
    ImageReference,
    is_bucket,
    is_commit,
    is_digest,
    is_endpoint,
    is_file_pattern,
    is_prefix,
    is_region,
    is_repository_id,
    is_revision,
    read_image,
)

SOURCE_HUGGINGFACE = "HuggingFace"
SOURCE_OCI = "OCI"
SOURCE_S3 = "S3"
SOURCES = (SOURCE_HUGGINGFACE, SOURCE_OCI, SOURCE_S3)
# The default region of S3 servers outside AWS.
_REGION = "us-east-1"


IMAGE = "image"
NODE_LOCAL = "nodeLocal"
SHARED = "ReadWriteMany"
ACCESS_MODES = (SHARED, "ReadWriteOnce")


@dataclass(frozen=True)
class WantedVolume:
    """The kind of volume.

    An empty `storage_class` means the one that the cluster reports.
    """

    access_mode: str = SHARED
    storage_class: str = ""


@dataclass(frozen=True)
class BucketFolder:
    """A folder of a bucket.

    `prefix` is empty or ends in `/`. With `path_style` the bucket follows the host in
    URLs; otherwise it is part of the host name.
    """

    endpoint: str
    region: str
    bucket: str
    prefix: str
    path_style: bool


@dataclass(frozen=True)
class Artifact:
    """The content to stage.

    `credential` names a Secret of the cache's namespace, or is empty. `credential_key`
    is its key, or empty for all keys. Files are staged if they match one of `allow` (an
    empty tuple matches all) and none of `ignore`. With `by_pods` nothing is staged, and
    each pod fetches the content itself: `image` or `nodeLocal`.
    """

    source: str
    origin: str
    revision: str
    size_gib: int
    credential: str = ""
    credential_key: str = ""
    image: str = ""
    plain_http: bool = False
    scratch_on_node: bool = False
    allow: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    folder: BucketFolder | None = None
    by_pods: str = ""

    @property
    def key(self) -> str:
        """The artifact key in 64 hex digits. Equal content has equal keys."""
        content: dict[str, object] = {
            "source": self.source,
            "origin": self.origin,
            "revision": self.revision,
        }
        if self.allow or self.ignore:
            content["files"] = {"allow": self.allow, "ignore": self.ignore}
        if self.by_pods:
            # Pods that change between a shared volume and their own volume mount
            # another volume.
            content["byPods"] = self.by_pods
        return content_hash(content)


def read_artifact(cache: CacheInput) -> Artifact:
    """Return the validated artifact of a cache.

    Raises InvalidSpec with all problems.
    """
    findings = Findings()
    check_encodable(cache.spec, "spec", findings)
    spec = Reader(cache.spec, "spec", findings)
    source = spec.choice("source", "", SOURCES)
    if source == SOURCE_OCI:
        artifact = _oci(spec.object("oci"), cache.revision)
    elif source == SOURCE_S3:
        artifact = _s3(spec.object("s3"), cache.revision)
    else:
        artifact = _hugging_face(spec.object("huggingFace"), cache.revision)
    if not source:
        findings.problem("spec", f"source must be one of {', '.join(SOURCES)}")
    findings.raise_if_any(f"ModelCache {cache.namespace}/{cache.name}")
    return replace(artifact, by_pods=by_pods(cache.spec))


def read_volume(spec: Mapping[str, Any]) -> WantedVolume:
    """Return the volume that a cache requests. Raises InvalidSpec with all problems."""
    findings = Findings()
    block = Reader(spec, "spec", findings).object("volume")
    wanted = WantedVolume(
        block.choice("accessMode", SHARED, ACCESS_MODES), block.text("storageClassName")
    )
    findings.raise_if_any("ModelCache")
    return wanted


def by_pods(spec: Mapping[str, Any]) -> str:
    """Return how pods get the content without a staged volume.

    Returns `image`, `nodeLocal`, or "" if the volume is staged.
    """
    volume = spec.get("volume") or {}
    if volume.get("image") is True and spec.get("source") == SOURCE_OCI:
        return IMAGE
    return NODE_LOCAL if volume.get("nodeLocal") is True else ""


def can_be_pin(source: str, text: str) -> bool:
    """Return whether a text can be a pin of the source: a hub commit, else a digest."""
    return is_commit(text) if source == SOURCE_HUGGINGFACE else is_digest(text)


def artifact_key(cache: CacheInput) -> str:
    return read_artifact(cache).key


def claim_name(cache: CacheInput) -> str:
    """Return the name of the artifact's volume claim. Raises InvalidSpec."""
    return names.cache_claim_name(cache.namespace, cache.name, artifact_key(cache))


def _hugging_face(block: Reader, revision: str) -> Artifact:
    repo = block.text("repo", required=True)
    if repo and not is_repository_id(repo):
        block.findings.problem(
            block.where,
            "repo must be 'owner/name' or 'name' of letters, digits, '.', '_' and '-', "
            f"without '..', is {repo!r}",
        )
    literal = block.text("revision")
    for given in (literal, revision):
        if given and not is_revision(given):
            block.findings.problem(
                block.where,
                "revision must be letters, digits, '.', '_', '-' and '/', "
                f"without a leading '-' or '..', is {given!r}",
            )
    secret = block.object("authSecret")
    return Artifact(
        source=SOURCE_HUGGINGFACE,
        origin=repo,
        revision=revision or literal,
        size_gib=_size(block),
        credential=secret.text("name", required=block.has("authSecret")),
        credential_key=secret.text("key", "HF_TOKEN"),
        allow=_patterns(block, "allowPatterns"),
        ignore=_patterns(block, "ignorePatterns"),
    )


def _patterns(block: Reader, name: str) -> tuple[str, ...]:
    """Return file patterns, sorted because their order is irrelevant."""
    patterns = block.texts(name)
    for pattern in patterns:
        if not is_file_pattern(pattern):
            block.findings.problem(
                block.where,
                f"{name} must hold patterns of files such as 'original/*', holds {pattern!r}",
            )
    return tuple(sorted(set(patterns)))


def _oci(block: Reader, revision: str) -> Artifact:
    image = block.text("image", required=True)
    reference = _image(block, image)
    digest = revision or reference.digest
    if digest and not is_digest(digest):
        block.findings.problem(
            block.where,
            f"the digest of the image must be 'sha256:' and 64 hex digits, is {digest!r}",
        )
    return Artifact(
        source=SOURCE_OCI,
        # If a tag points to the same content again, it is the same artifact.
        origin=reference.name if digest else image,
        revision=digest,
        size_gib=_size(block),
        credential=block.text("pullSecret"),
        image=f"{reference.name}@{digest}" if digest else image,
        plain_http=block.fields.get("plainHTTP") is True,
        scratch_on_node=block.choice("scratch", "claim", ("claim", "node")) == "node",
    )


def _image(block: Reader, image: str) -> ImageReference:
    try:
        return read_image(image)
    except ValueError as error:
        if image:
            block.findings.problem(
                block.where,
                "image must be a reference such as 'registry.example/models/qwen:1.0', "
                f"is {image!r}: {error}",
            )
        return ImageReference("", "", "", "")


def _s3(block: Reader, revision: str) -> Artifact:
    region_default = _REGION if block.has("endpoint") else ""
    endpoint = block.text("endpoint")
    region = block.text("region", region_default, required=True)
    bucket = block.text("bucket", required=True)
    prefix = block.text("prefix").rstrip("/")
    checks = (
        (
            "endpoint",
            endpoint,
            is_endpoint,
            "the address of a server, such as 'https://storage.googleapis.com'",
        ),
        ("region", region, is_region, "a region such as 'eu-central-1'"),
        (
            "bucket",
            bucket,
            is_bucket,
            "a bucket of 3 to 63 lower-case letters, digits, '.' and '-'",
        ),
        (
            "prefix",
            prefix,
            is_prefix,
            "folders separated by single '/', without '.' and '..'",
        ),
        ("digest of the listing", revision, is_digest, "'sha256:' and 64 hex digits"),
    )
    for name, text, is_valid, form in checks:
        if text and not is_valid(text):
            block.findings.problem(block.where, f"{name} must be {form}, is {text!r}")
    secret = block.object("authSecret")
    endpoint = endpoint or f"https://s3.{region}.amazonaws.com"
    folder_prefix = f"{prefix}/" if prefix else ""
    # A wildcard certificate for a server's buckets does not cover names with a dot.
    path_style = block.fields.get("pathStyle") is True or "." in bucket
    return Artifact(
        source=SOURCE_S3,
        origin=f"{endpoint}/{bucket}/{prefix}",
        revision=revision,
        size_gib=_size(block),
        credential=secret.text("name", required=block.has("authSecret")),
        credential_key=secret.text("key", "credentials"),
        plain_http=endpoint.startswith("http://"),
        folder=BucketFolder(endpoint, region, bucket, folder_prefix, path_style),
    )


def _size(block: Reader) -> int:
    if not block.has("sizeGiB"):
        block.findings.problem(
            block.where, "sizeGiB is missing: how large must the volume be?"
        )
    return block.integer("sizeGiB", 1, 1, 100_000)
