"""What exactly a ModelCache stages: source, origin and pinned revision, read and checked.

Equal content has an equal key, so a volume is named after the key and never holds two revisions.
"""

import re
from dataclasses import dataclass

from activities.render.inputs.facts import CacheInput
from activities.render.inputs.findings import Findings
from activities.render.inputs.reader import Reader, check_encodable
from api_types import names
from api_types.digests import content_hash

SOURCE_HUGGINGFACE = "HuggingFace"
SOURCE_OCI = "OCI"
_REPO = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*(/[A-Za-z0-9._][A-Za-z0-9._-]*)?")
_REVISION = re.compile(r"[A-Za-z0-9._/][A-Za-z0-9._/-]*")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Artifact:
    """What exactly is staged. `credential` names a Secret of the cache's namespace, empty without one; `key` its key, empty for all."""

    source: str
    origin: str
    revision: str
    size_gib: int
    credential: str = ""
    credential_key: str = ""
    image: str = ""
    plain_http: bool = False
    scratch_on_node: bool = False

    @property
    def key(self) -> str:
        """The artifact key: equal for equal content, in 64 hex digits."""
        return content_hash({"source": self.source, "origin": self.origin, "revision": self.revision})


def read_artifact(cache: CacheInput) -> Artifact:
    """Read and check what a cache stages. Raises InvalidSpec with all problems."""
    findings = Findings()
    check_encodable(cache.spec, "spec", findings)
    spec = Reader(cache.spec, "spec", findings)
    source = spec.choice("source", "", (SOURCE_HUGGINGFACE, SOURCE_OCI))
    artifact = (
        _oci(spec.object("oci"), cache.revision) if source == SOURCE_OCI else _hugging_face(spec.object("huggingFace"), cache.revision)
    )
    if not source:
        findings.problem("spec", f"source must be {SOURCE_HUGGINGFACE} or {SOURCE_OCI}")
    findings.raise_if_any(f"ModelCache {cache.namespace}/{cache.name}")
    return artifact


def artifact_key(cache: CacheInput) -> str:
    """Give the key of what a cache stages. Raises InvalidSpec."""
    return read_artifact(cache).key


def claim_name(cache: CacheInput) -> str:
    """Name the volume claim of the artifact. Raises InvalidSpec."""
    return names.cache_claim_name(cache.namespace, cache.name, artifact_key(cache))


def _hugging_face(block: Reader, revision: str) -> Artifact:
    repo = block.text("repo", required=True)
    if repo and not _REPO.fullmatch(repo):
        block.findings.problem(block.where, f"repo must be 'owner/name' or 'name' of letters, digits, '.', '_' and '-', is {repo!r}")
    literal = block.text("revision")
    if literal and not _REVISION.fullmatch(literal):
        block.findings.problem(
            block.where, f"revision must be letters, digits, '.', '_', '-' and '/', without a leading '-', is {literal!r}"
        )
    secret = block.object("authSecret")
    return Artifact(
        source=SOURCE_HUGGINGFACE,
        origin=repo,
        revision=revision or literal,
        size_gib=_size(block),
        credential=secret.text("name", required=block.has("authSecret")),
        credential_key=secret.text("key", "HF_TOKEN"),
    )


def _oci(block: Reader, revision: str) -> Artifact:
    image = block.text("image", required=True)
    if image and not _IMAGE.fullmatch(image):
        block.findings.problem(block.where, f"image must be a reference such as 'registry.example/models/qwen:1.0', is {image!r}")
    repository, literal = _split_reference(image)
    digest = revision or literal
    if digest and not _DIGEST.fullmatch(digest):
        block.findings.problem(block.where, f"the digest of the image must be 'sha256:' and 64 hex digits, is {digest!r}")
    return Artifact(
        source=SOURCE_OCI,
        # A tag that moves back to the same content is the same artifact.
        origin=repository if digest else image,
        revision=digest,
        size_gib=_size(block),
        credential=block.text("pullSecret"),
        image=f"{repository}@{digest}" if digest else image,
        plain_http=block.fields.get("plainHTTP") is True,
        scratch_on_node=block.choice("scratch", "claim", ("claim", "node")) == "node",
    )


def _split_reference(image: str) -> tuple[str, str]:
    """Give repository and digest of an image reference; a colon before the last slash belongs to the registry's port, not to a tag."""
    name, _, digest = image.partition("@")
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}", digest


def _size(block: Reader) -> int:
    if not block.has("sizeGiB"):
        block.findings.problem(block.where, "sizeGiB is missing: how large must the volume be?")
    return block.integer("sizeGiB", 1, 1, 100_000)
