"""Update the staging on a cluster with the cluster's reports.

The functions change the state that they receive. They do no I/O and read no clock.
"""

from api_types.messages.caches import CacheSite
from workflows.model_cache.plan import selects
from workflows.model_cache.spec import gets_by_pods, match_labels, volume_class
from workflows.model_cache.state import CacheState, ClusterStaging


def new_staging(
    site: CacheSite, volume_class: str = "", *, by_pods: bool = False
) -> ClusterStaging:
    staging = ClusterStaging(site=site, volume_class=volume_class, by_pods=by_pods)
    _take(staging, site)
    return staging


def why_not(staging: ClusterStaging) -> str:
    """Return why nothing new can be staged on a cluster, or "".

    The result is "" for a cluster that is being deleted.
    """
    if staging.site.connection is None:
        return "is not connected"
    if not staging.storage_class and not staging.by_pods:
        return "reports no storage class for caches"
    return ""


def record_unready(state: CacheState, site: CacheSite) -> None:
    """Record why nothing can be staged on a cluster that the selector matches."""
    spec, why = state.spec, ""
    if site.present and not site.deleting and selects(match_labels(spec), site):
        new = new_staging(site, volume_class(spec), by_pods=gets_by_pods(spec))
        why = why_not(new)
    unready = {**state.unready, site.name: why}
    state.unready = {name: known for name, known in unready.items() if known}


def record_site(staging: ClusterStaging, site: CacheSite) -> bool:
    """Record a report of a cluster. Return False if a newer one is known.

    A cluster under deletion that reports no connection is reached as before, because it
    waits until the volumes are deleted.
    """
    version = staging.site_version
    if not version.accepts(site.uid, site.sequence):
        return False
    if version.uid != site.uid:
        # This is another cluster of the same name. It does not know this cache, and the
        # applied objects may be gone.
        staging.registered = False
        _apply_again(staging)
    elif (
        None not in (staging.site.storage_classes, site.storage_classes)
        and staging.site.storage_classes != site.storage_classes
    ):
        # A missing class may exist now, or a class may allow volume expansion now.
        staging.retry_at = ""
        _apply_again(staging)
    if site.present and site.deleting and site.connection is None:
        site = site.model_copy(update={"connection": staging.site.connection})
    _take(staging, site)
    return True


def _apply_again(staging: ClusterStaging) -> None:
    for copy in staging.copies:
        copy.applied_generation = 0


def _take(staging: ClusterStaging, site: CacheSite) -> None:
    staging.site, version = site, staging.site_version.advanced(site.uid, site.sequence)
    staging.site_version = version if site.present else version.ended(site.uid)
