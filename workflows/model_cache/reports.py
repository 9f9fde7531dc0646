"""The reports of a ModelCache to its users. Pure."""

from activities.render.cache.artifact import SHARED
from api_types.messages.caches import CacheAccount, CacheChanged, CacheReport
from api_types.messages.cluster_work import CacheMount
from workflows.model_cache.spec import match_labels, node_local_of, size_gib
from workflows.model_cache.state import CacheCopy, CacheState, CacheUser
from workflows.model_cache.status import phase_of


def deployment_report(name: str, state: CacheState) -> CacheChanged:
    """Return the report for the placement of a deployment."""
    return CacheChanged(
        cache=name,
        uid=state.uid,
        present=state.spec is not None,
        deleting=state.deleting,
        match_labels=match_labels(state.spec),
        phases={
            cluster: "Ready" if staging.published else phase_of(staging).phase
            for cluster, staging in state.stagings.items()
        },
    )


def replica_report(name: str, state: CacheState, user: CacheUser) -> CacheReport:
    """Return the report to one replica about its cluster.

    An assigned claim is never withdrawn: a missing volume must not stop a pod.
    """
    staging = state.stagings.get(user.cluster)
    published = staging.published if staging else None
    phase, message = "", f"ModelCache {name} is not staged on {user.cluster}"
    if staging:
        phase, message = phase_of(staging)
    if state.deleting and not user.assigned_claim:
        message = f"ModelCache {name} is being deleted"
    copies = staging.copies if staging else []
    assigned = next(
        (copy for copy in copies if copy.claim == user.assigned_claim), None
    )
    mount = _mount(state, assigned, current=copies[0]) if assigned else None
    return CacheReport(
        cache=name,
        uid=state.uid,
        sequence=0,
        cluster=user.cluster,
        phase="Ready" if published else phase,
        claim=user.assigned_claim,
        size_gib=size_gib(state),
        mount=mount,
        artifact_key=assigned.artifact_key if assigned else "",
        revision=(assigned.commit or assigned.revision) if assigned else "",
        message="" if user.assigned_claim else message,
    )


def _mount(state: CacheState, copy: CacheCopy, current: CacheCopy) -> CacheMount | None:
    """Return how an artifact is mounted.

    Return None for a volume that all nodes can mount, and for an outdated artifact.
    """
    if copy.node_local:
        # The spec describes only the desired artifact. Pods with an older one keep
        # theirs.
        content = node_local_of(state, copy.revision) if copy is current else None
        return CacheMount(node_local=content) if content else None
    if copy.image:
        return CacheMount(image=copy.image, pull_secret=copy.pull_secret)
    if copy.access_mode in ("", SHARED):
        return None
    return CacheMount(access_mode=copy.access_mode)


def account(namespace: str, name: str, state: CacheState) -> CacheAccount:
    """Return the known clusters with objects of this cache."""
    clusters = [
        cluster
        for cluster, staging in state.stagings.items()
        if any(not copy.by_pods for copy in staging.copies)
    ]
    if state.deleting:
        clusters = []
    return CacheAccount(
        namespace=namespace, name=name, uid=state.uid, clusters=clusters
    )
