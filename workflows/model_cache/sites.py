"""How a report of a cluster changes what a ModelCache has there: changes the given state; no I/O, no clock."""

from api_types.messages.caches import CacheSite
from workflows.model_cache.plan import selects
from workflows.model_cache.spec import gets_by_pods, match_labels, volume_class
from workflows.model_cache.state import CacheState, ClusterStaging


def new_staging(site: CacheSite, volume_class: str = "", *, by_pods: bool = False) -> ClusterStaging:
    """Begin with a cluster that is not known yet."""
    staging = ClusterStaging(site=site, volume_class=volume_class, by_pods=by_pods)
    _take(staging, site)
    return staging


def why_not(staging: ClusterStaging) -> str:
    """Say why nothing new can be staged on a cluster; empty if it can, or is being deleted."""
    if staging.site.connection is None:
        return "is not connected"
    if not staging.storage_class and not staging.by_pods:
        return "reports no storage class for caches"
    return ""


def record_unready(state: CacheState, site: CacheSite) -> None:
    """Record whether a cluster is one that the selector matches, and why nothing can be staged on it."""
    why = ""
    if site.present and not site.deleting and selects(match_labels(state.spec), site):
        why = why_not(new_staging(site, volume_class(state.spec), by_pods=gets_by_pods(state.spec)))
    state.unready = {name: known for name, known in {**state.unready, site.name: why}.items() if known}


def record_site(staging: ClusterStaging, site: CacheSite) -> bool:
    """Record what a cluster reports; False if something newer is known of it."""
    version = staging.site_version
    if not version.accepts(site.uid, site.sequence):
        return False
    if version.uid != site.uid:
        # Another cluster of that name: it does not know what this cache has there, and what was applied may be gone.
        staging.registered = False
        _apply_again(staging)
    elif None not in (staging.site.storage_classes, site.storage_classes) and staging.site.storage_classes != site.storage_classes:
        # A class that was missing may be there, and one that could not expand volumes may do so.
        staging.retry_at = ""
        _apply_again(staging)
    _take(staging, site)
    return True


def _apply_again(staging: ClusterStaging) -> None:
    for copy in staging.copies:
        copy.applied_generation = 0


def _take(staging: ClusterStaging, site: CacheSite) -> None:
    staging.site, version = site, staging.site_version.advanced(site.uid, site.sequence)
    staging.site_version = version if site.present else version.ended(site.uid)
