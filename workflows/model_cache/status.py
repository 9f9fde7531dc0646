"""What a ModelCache shows of itself: phases, conditions and status fields, as pure functions of its state."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from activities.observe.cache import BOUND
from workflows.entity.conditions import FALSE, TRUE, Verdict
from workflows.model_cache.plan import is_final, selects
from workflows.model_cache.sites import why_not
from workflows.model_cache.spec import match_labels
from workflows.model_cache.state import RESOLVE_ATTEMPTS, CacheState, ClusterStaging, Copy, PinnedRevision

MESSAGE_MAX = 1024
# Of the clusters that a condition names.
_NAMED_MAX = 5


class ClusterPhase(NamedTuple):
    """How far the desired artifact is on a cluster; `selected`: the cluster counts for the conditions."""

    cluster: str
    phase: str
    message: str
    selected: bool


class StagingPhase(NamedTuple):
    """How far an artifact is on a cluster, and what it waits for or why it failed."""

    phase: str
    message: str


def phase_of(staging: ClusterStaging, unresolved: str = "") -> StagingPhase:
    """Give how far the desired artifact is on a cluster; `unresolved` is why the revision could not be resolved."""
    current = staging.copies[0] if staging.copies else None
    if staging.awaits and (current is None or not current.ready_at):
        return StagingPhase(
            "Pending", _obstacle(staging) or f"waits for {staging.awaits}: its volume will say which revision all clusters stage"
        )
    if current is None:
        waits = "waits for the revision that all pods get" if staging.by_pods else "the revision is being resolved"
        return StagingPhase("Pending", _obstacle(staging) or f"{waits}: {unresolved or 'see RevisionPinned'}"[:MESSAGE_MAX])
    if current.by_pods:
        how = f"nodes pull {current.image}" if current.image else "each pod fills a volume of its own before its engine starts"
        return StagingPhase("Ready", _obstacle(staging) or f"nothing to stage: {how}")
    if current.ready_at:
        return StagingPhase("Ready", _obstacle(staging) or current.warning)
    if current.failed:
        return StagingPhase("Failed", _failure(staging, current))
    observed = staging.observed
    volume = next((volume for volume in observed.volumes if volume.claim == current.claim), None) if observed else None
    job = next((job for job in observed.jobs if job.uid == current.job_uid), None) if observed and current.job_uid else None
    obstacle = _obstacle(staging) or current.missing_credential or (job.blocker if job else "")
    if volume and volume.phase == BOUND:
        return StagingPhase("Hydrating", obstacle or ("" if job else "waits for its Job"))
    if job and volume and volume.phase == "Pending":
        claim = f"volume claim {current.claim} of storage class {staging.storage_class} is not bound"
        return StagingPhase("Hydrating", f"{obstacle}; {claim}" if obstacle else f"waits for the first consumer of its volume: {claim}")
    waits = f"waits for volume claim {current.claim}, which is {volume.phase}" if volume else "waits for its volume claim"
    return StagingPhase("Pending", obstacle or waits)


def _failure(staging: ClusterStaging, copy: Copy) -> str:
    code = f"exit code {copy.exit_code}: " if copy.exit_code else ""
    then = "no further attempt until spec or credential change" if is_final(copy, staging.site) else f"next attempt at {copy.retry_at}"
    text = f"{code}{copy.failure}".encode()[: MESSAGE_MAX - len(then) - 3].decode(errors="ignore")
    return f"{text} ({then})"


def _obstacle(staging: ClusterStaging) -> str:
    if staging.error.type:
        return f"{staging.error.type}: {staging.error.message}"[:MESSAGE_MAX]
    why = why_not(staging)
    return f"InferenceCluster {staging.site.name} {why}" if why else ""


def by_name(stagings: Mapping[str, ClusterStaging]) -> list[ClusterStaging]:
    """Give the clusters in the order in which they are shown."""
    return [stagings[name] for name in sorted(stagings)]


def cluster_phases(stagings: Sequence[ClusterStaging], wanted: Mapping[str, str], unresolved: str = "") -> list[ClusterPhase]:
    """Give the phase on every cluster; one that is no longer selected, or is being deleted, does not count."""
    return [
        ClusterPhase(staging.site.name, *phase_of(staging, unresolved), selects(wanted, staging.site) and not staging.site.deleting)
        for staging in stagings
    ]


def no_clusters(state: CacheState) -> str:
    """Say why a cache has no cluster: none matches its selector, or nothing can be staged on those that do."""
    wanted = ", ".join(f"{key}={value}" for key, value in sorted(match_labels(state.spec).items()))
    if state.unready:
        named = [f"InferenceCluster {name} {why}" for name, why in sorted(state.unready.items())[:_NAMED_MAX]]
        more = [f"{len(state.unready) - _NAMED_MAX} more"] if len(state.unready) > _NAMED_MAX else []
        return f"nothing can be staged on the clusters that clusterSelector matches: {'; '.join([*named, *more])}"
    return f"no InferenceCluster has the labels of clusterSelector: {wanted}" if wanted else "there is no InferenceCluster"


def unresolved(pin: PinnedRevision | None) -> str:
    """Say why the revision could not be resolved; empty while that was not tried, or if there is one."""
    return pin.problem if pin and not pin.revision else ""


def matched_verdict(phases: Sequence[ClusterPhase], no_clusters: str) -> Verdict:
    """Give `ClustersMatched`; `no_clusters` says why there is none."""
    count = sum(1 for each in phases if each.selected)
    if not count:
        return Verdict(FALSE, "NoClusters", no_clusters[:MESSAGE_MAX])
    return Verdict(TRUE, "Matched", f"{count} clusters")


def artifact_verdict(phases: Sequence[ClusterPhase], missing_credential: str, no_clusters: str = "") -> Verdict:
    """Give `ArtifactReady`; `missing_credential` says which credential is missing, empty if none is, `no_clusters` why there is none."""
    selected = [each for each in phases if each.selected]
    ready = [each for each in selected if each.phase == "Ready"]
    failed = [each for each in selected if each.phase == "Failed"]
    if not selected:
        return Verdict(FALSE, "NoClusters", no_clusters[:MESSAGE_MAX])
    if len(ready) == len(selected):
        return Verdict(TRUE, "Staged", "; ".join(f"{each.cluster}: {each.message}" for each in ready if each.message))
    if missing_credential:
        return Verdict(FALSE, "AuthSecretMissing", missing_credential)
    if failed:
        return Verdict(FALSE, "Failed", "; ".join(f"{each.cluster}: {each.message}" for each in failed))
    waits = "; ".join(_waiting(each) for each in selected if each.phase != "Ready")
    if ready:
        return Verdict(FALSE, "Partial", f"{len(ready)} of {len(selected)} clusters are staged; {waits}")
    return Verdict(FALSE, "Hydrating", waits)


def _waiting(each: ClusterPhase) -> str:
    return f"{each.cluster}: {each.phase}{f', {each.message}' if each.message else ''}"


def ready_verdict(artifact: Verdict, *, was_ready: bool) -> Verdict:
    """Give `Ready`, which follows `ArtifactReady`."""
    if artifact.status == TRUE:
        return Verdict(TRUE, "Available", "")
    return Verdict(FALSE, "Unavailable" if was_ready else "Creating", f"{artifact.reason}: {artifact.message}")


def revision_verdict(pin: PinnedRevision) -> Verdict:
    """Give `RevisionPinned`."""
    if pin.revision and not pin.problem:
        return Verdict(TRUE, "Resolved", pin.revision)
    if pin.revision:
        fallback = f"revision {pin.revision} stays"
    elif pin.waits_for_source:
        fallback = f"nothing is staged before attempt {pin.errors + 1} of {RESOLVE_ATTEMPTS}"
    else:
        fallback = "one cluster stages the revision as it is written, and the others what it meant there"
    again = f"; resolved again at {pin.retry_at}" if pin.retry_at else ""
    return Verdict(FALSE, "Unresolved", f"{pin.problem}; {fallback}{again}")


def removal_progress(stagings: Sequence[ClusterStaging]) -> str:
    """Say from which clusters the objects of a deleted cache are being removed, and what prevents it."""
    return f"removing Job, credential and volume from {'; '.join(f'{staging.site.name}{_prevented(staging)}' for staging in stagings)}"


def _prevented(staging: ClusterStaging) -> str:
    if staging.error.type:
        return f" ({staging.error.type}: {staging.error.message})"
    return "" if staging.site.connection else " (not connected)"


def status_fields(state: CacheState, phases: Sequence[ClusterPhase], retained: Sequence[str]) -> dict[str, Any]:
    """Give the kind's own status fields; `retained` are clusters that are no longer selected, but whose volume is in use."""
    selected = [each for each in phases if each.selected]
    ready = sum(1 for each in selected if each.phase == "Ready")
    status: dict[str, Any] = {
        "summary": {"ready": f"{ready}/{len(selected)}"},
        "clusters": [_cluster(state.stagings[each.cluster], each, retained) for each in phases],
    }
    if state.pin and state.pin.revision:
        status["resolvedRevision"] = state.pin.revision
    return status


def _cluster(staging: ClusterStaging, shown: ClusterPhase, retained: Sequence[str]) -> dict[str, Any]:
    copy = staging.copies[0] if staging.copies else None
    row: dict[str, Any] = {"name": shown.cluster, "phase": shown.phase}
    if shown.message:
        row["message"] = shown.message
    if copy:
        row |= {} if copy.by_pods else {"claimName": copy.claim}
        row |= {"artefactKey": copy.artifact_key, "attempts": copy.attempts}
        row |= {
            field: value
            for field, value in (("revision", copy.commit or copy.revision), ("startedAt", copy.started_at), ("readyAt", copy.ready_at))
            if value
        }
    if shown.cluster in retained:
        row["retained"] = True
    return row


def details_table(phases: Sequence[ClusterPhase]) -> list[str]:
    """Show every cluster in Markdown."""
    rows = [f"| {each.cluster} | {each.phase} | {each.message.replace('|', '/')} |" for each in phases]
    return ["| Cluster | Phase | |", "|---|---|---|", *rows, ""] if rows else []
