"""Read the selector, the artifact and the desired staging from a ModelCache. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from activities.render.cache.access import options_of
from activities.render.cache.artifact import (
    NODE_LOCAL,
    Artifact,
    artifact_key,
    by_pods,
    claim_name,
    read_artifact,
)
from activities.render.inputs.facts import CacheInput
from activities.render.inputs.findings import InvalidSpec
from api_types.digests import report_digest
from api_types.messages.caches import SecretKey
from api_types.messages.cluster_work import NodeLocal
from api_types.model_sources import is_commit, is_digest
from api_types.resources.model_cache import SOURCE_BLOCKS
from workflows.model_cache.state import CacheState


class DesiredStaging(NamedTuple):
    """The artifact that shall be staged on the selected clusters.

    Attributes:
        credential: the Secret that the source needs. Empty if it needs none.
        others: further Secrets that the Job needs.
        pinned: whether the revision is resolved, and not a reference from the spec.
        deleting: whether everything is removed from all clusters.
        by_pods: how each pod gets its own data. Empty for a staged volume.
        exact: whether the revision is one commit or digest.

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
    """Return the labels that a cluster must have."""
    return dict(((spec or {}).get("clusterSelector") or {}).get("matchLabels") or {})


def volume_class(spec: Mapping[str, Any] | None) -> str:
    """Return the storage class in the spec.

    Empty for the one that each cluster reports.
    """
    return str(((spec or {}).get("volume") or {}).get("storageClassName") or "")


def gets_by_pods(spec: Mapping[str, Any] | None) -> bool:
    """Return whether each pod gets its own data, so that nothing is staged."""
    return bool(by_pods(spec or {}))


def node_local_of(state: CacheState, revision: str) -> NodeLocal | None:
    """Return how pods fill their own volumes with a revision.

    Return None if the spec does not ask for node-local volumes.
    """
    spec = state.spec or {}
    if by_pods(spec) != NODE_LOCAL:
        return None
    content = {
        field: spec[field]
        for field in ("source", *SOURCE_BLOCKS.values(), "volume", "hydration")
        if field in spec
    }
    return NodeLocal(
        spec=content,
        revision=revision,
        storage_class_name=volume_class(spec),
        size_gib=size_gib(state),
    )


def artifact_of(namespace: str, name: str, state: CacheState) -> Artifact:
    """Return the artifact with the revision as written in the spec.

    Raise InvalidSpec if the renderer cannot read it.
    """
    return read_artifact(_as_input(namespace, name, state))


def size_gib(state: CacheState) -> int:
    """Return the size of the volume. 0 if the spec cannot be read."""
    try:
        return artifact_of("", "", state).size_gib if state.spec else 0
    except InvalidSpec:
        return 0


def key_of(namespace: str, name: str, state: CacheState, revision: str = "") -> str:
    """Return the artifact's key at a revision.

    Without one, use the spec's reference.
    """
    return artifact_key(_as_input(namespace, name, state, revision))


def reference_of(artifact: Artifact) -> str:
    """Return a digest of the fields from which a revision is resolved."""
    return report_digest([artifact.source, artifact.origin, artifact.revision])


def desired_staging(
    namespace: str, name: str, state: CacheState
) -> DesiredStaging | None:
    """Return the desired staging. None until the revision was resolved or failed to."""
    if state.spec is None or state.pin is None:
        return None
    artifact = artifact_of(namespace, name, state)
    if state.pin.reference != reference_of(artifact):
        # The spec changed while the old reference was being resolved. The revision does
        # not apply to another source.
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
        exact=bool(state.pin.revision)
        or is_digest(exactly.revision)
        or is_commit(exactly.revision),
        image=exactly.image,
        others=tuple(
            SecretKey(name=copy.name, key=copy.key)
            for copy in options_of(pinned).copies
        ),
    )


def nothing_staged(state: CacheState) -> DesiredStaging:
    """Return the desired staging of a deleted cache: nothing."""
    return DesiredStaging(match_labels(state.spec), deleting=True)


def _as_input(
    namespace: str, name: str, state: CacheState, revision: str = ""
) -> CacheInput:
    return CacheInput(
        namespace,
        name,
        state.uid,
        state.generation,
        "",
        state.spec or {},
        revision=revision,
    )
