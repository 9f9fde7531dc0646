"""What the spec of a ModelCache means: the selector, the artifact, and what shall be on the selected clusters. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from activities.render.cache.access import options_of
from activities.render.cache.artifact import NODE_LOCAL, Artifact, artifact_key, by_pods, claim_name, read_artifact
from activities.render.inputs.facts import CacheInput
from activities.render.inputs.findings import InvalidSpec
from api_types.digests import report_digest
from api_types.messages.caches import SecretKey
from api_types.messages.cluster_work import NodeLocal
from api_types.model_sources import is_commit, is_digest
from api_types.resources.model_cache import SOURCE_BLOCKS
from workflows.model_cache.state import CacheState


class DesiredStaging(NamedTuple):
    """What shall be staged on the selected clusters; `deleting`: nothing, on none of them.

    `pinned`: the revision is one commit or digest, not a reference as it is written.
    `by_pods`: how each pod gets it, empty for a volume that is staged; `exact`: the revision is one commit or digest.
    `credential` names the Secret that the source needs, empty if it needs none; `others` are what the Job needs besides.
    """

    match_labels: Mapping[str, str]
    artifact_key: str = ""
    claim: str = ""
    revision: str = ""
    generation: int = 0
    volume_class: str = ""
    credential: str = ""
    credential_key: str = ""
    others: tuple[SecretKey, ...] = ()
    pinned: bool = True
    deleting: bool = False
    by_pods: str = ""
    exact: bool = False
    image: str = ""


def match_labels(spec: Mapping[str, Any] | None) -> dict[str, str]:
    """Give the labels that a cluster must have."""
    return dict(((spec or {}).get("clusterSelector") or {}).get("matchLabels") or {})


def volume_class(spec: Mapping[str, Any] | None) -> str:
    """Give the storage class that the spec names for all clusters; empty for the one that each reports."""
    return str(((spec or {}).get("volume") or {}).get("storageClassName") or "")


def gets_by_pods(spec: Mapping[str, Any] | None) -> bool:
    """Tell whether each pod gets by itself what the spec names, so that nothing is staged on clusters."""
    return bool(by_pods(spec or {}))


def node_local_of(state: CacheState, revision: str) -> NodeLocal | None:
    """Say how pods fill volumes of their own with a revision; None if the spec asks for something else."""
    spec = state.spec or {}
    if by_pods(spec) != NODE_LOCAL:
        return None
    content = {field: spec[field] for field in ("source", *SOURCE_BLOCKS.values(), "volume", "hydration") if field in spec}
    return NodeLocal(spec=content, revision=revision, storage_class_name=volume_class(spec), size_gib=size_gib(state))


def artifact_of(namespace: str, name: str, state: CacheState) -> Artifact:
    """Read what is staged, its revision as written in the spec; InvalidSpec if rendering could not read it."""
    return read_artifact(_as_input(namespace, name, state))


def size_gib(state: CacheState) -> int:
    """Give the size of the volume that the spec asks for; 0 if it cannot be read."""
    try:
        return artifact_of("", "", state).size_gib if state.spec else 0
    except InvalidSpec:
        return 0


def key_of(namespace: str, name: str, state: CacheState, revision: str = "") -> str:
    """Give the key of the artifact at a revision; empty: as it is written in the spec."""
    return artifact_key(_as_input(namespace, name, state, revision))


def reference_of(artifact: Artifact) -> str:
    """Give a digest of what a revision is resolved from."""
    return report_digest([artifact.source, artifact.origin, artifact.revision])


def desired_staging(namespace: str, name: str, state: CacheState) -> DesiredStaging | None:
    """Give what shall be staged; None until it was tried to resolve the revision."""
    if state.spec is None or state.pin is None:
        return None
    artifact = artifact_of(namespace, name, state)
    if state.pin.reference != reference_of(artifact):
        # The spec changed while the old one was resolved: its revision means nothing to another source.
        return None
    pinned = _as_input(namespace, name, state, state.pin.revision)
    exactly = read_artifact(pinned)
    return DesiredStaging(
        match_labels=match_labels(state.spec),
        artifact_key=artifact_key(pinned),
        claim=claim_name(pinned),
        revision=state.pin.revision or artifact.revision,
        generation=state.generation,
        volume_class=volume_class(state.spec),
        credential=artifact.credential,
        credential_key=artifact.credential_key,
        pinned=bool(state.pin.revision),
        by_pods=exactly.by_pods,
        exact=bool(state.pin.revision) or is_digest(exactly.revision) or is_commit(exactly.revision),
        image=exactly.image,
        others=tuple(SecretKey(name=copy.name, key=copy.key) for copy in options_of(pinned).copies),
    )


def nothing_staged(state: CacheState) -> DesiredStaging:
    """Give what a deleted cache shall have on its clusters: nothing."""
    return DesiredStaging(match_labels(state.spec), deleting=True)


def _as_input(namespace: str, name: str, state: CacheState, revision: str = "") -> CacheInput:
    return CacheInput(namespace, name, state.uid, state.generation, "", state.spec or {}, revision=revision)
