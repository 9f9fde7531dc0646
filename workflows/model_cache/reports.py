"""What a ModelCache reports to its users and to observers. Pure."""

from activities.render.cache.artifact import SHARED
from api_types.messages.caches import CacheAccount, CacheChanged, CacheReport
from api_types.messages.cluster_work import CacheMount
from workflows.model_cache.spec import match_labels, node_local_of, size_gib
from workflows.model_cache.state import CacheState, Copy, User
from workflows.model_cache.status import phase_of


def deployment_report(name: str, state: CacheState) -> CacheChanged:
    """Say what placement reads of this cache."""
    return CacheChanged(
        cache=name,
        uid=state.uid,
        present=state.spec is not None,
        deleting=state.deleting,
        match_labels=match_labels(state.spec),
        phases={cluster: "Ready" if staging.published else phase_of(staging).phase for cluster, staging in state.stagings.items()},
    )


def replica_report(name: str, state: CacheState, user: User) -> CacheReport:
    """Say what one replica must know of its cluster. An assigned claim is never withdrawn: a missing volume stops no pod."""
    staging = state.stagings.get(user.cluster)
    published = staging.published if staging else None
    phase, message = phase_of(staging) if staging else ("", f"ModelCache {name} is not staged on {user.cluster}")
    if state.deleting and not user.assigned_claim:
        message = f"ModelCache {name} is being deleted"
    assigned = next((copy for copy in staging.copies if copy.claim == user.assigned_claim), None) if staging else None
    return CacheReport(
        cache=name,
        uid=state.uid,
        sequence=0,
        cluster=user.cluster,
        phase="Ready" if published else phase,
        claim=user.assigned_claim,
        size_gib=size_gib(state),
        mount=_mount(state, assigned, current=staging.copies[0]) if staging and assigned else None,
        artifact_key=assigned.artifact_key if assigned else "",
        revision=(assigned.commit or assigned.revision) if assigned else "",
        message="" if user.assigned_claim else message,
    )


def _mount(state: CacheState, copy: Copy, current: Copy) -> CacheMount | None:
    """Say how an artifact is mounted; None for a volume that all nodes can mount, and for what is not desired any more."""
    if copy.node_local:
        # The spec is that of the desired artifact alone. Pods with an older one keep what they were told.
        content = node_local_of(state, copy.revision) if copy is current else None
        return CacheMount(node_local=content) if content else None
    if copy.image:
        return CacheMount(image=copy.image, pull_secret=copy.pull_secret)
    return CacheMount(access_mode=copy.access_mode) if copy.access_mode not in ("", SHARED) else None


def account(namespace: str, name: str, state: CacheState) -> CacheAccount:
    """Say where this cache has objects, as far as it knows."""
    clusters = (
        []
        if state.deleting
        else [cluster for cluster, staging in state.stagings.items() if any(not copy.by_pods for copy in staging.copies)]
    )
    return CacheAccount(namespace=namespace, name=name, uid=state.uid, clusters=clusters)
