"""The phases, conditions and status fields of a ModelCache. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from activities.observe.cache import BOUND
from workflows.entity.conditions import FALSE, TRUE, Verdict
from workflows.model_cache.plan import is_final, selects
from workflows.model_cache.sites import why_not
from workflows.model_cache.spec import match_labels
from workflows.model_cache.state import (
    RESOLVE_ATTEMPTS,
    CacheCopy,
    CacheState,
    ClusterStaging,
    PinnedRevision,
)

MESSAGE_MAX = 1024
# The number of clusters that a condition names.
_NAMED_MAX = 5


class ClusterPhase(NamedTuple):
    """The phase of the desired artifact on a cluster, with a message.

    `selected` is True if the cluster counts for the conditions.
    """

    cluster: str
    phase: str
    message: str
    selected: bool


class StagingPhase(NamedTuple):
    """The phase of an artifact, with the reason for a wait or failure."""

    phase: str
    message: str


def phase_of(staging: ClusterStaging, unresolved: str = "") -> StagingPhase:
    """Return the phase of the desired artifact on a cluster.

    `unresolved` is why the revision could not be resolved.
    """
    current = staging.copies[0] if staging.copies else None
    if staging.awaits and (current is None or not current.ready_at):
        return StagingPhase(
            "Pending",
            _obstacle(staging)
            or f"waits for {staging.awaits}: all clusters stage the revision of its volume",
        )
    if current is None:
        waits = (
            "waits for the revision that all pods get"
            if staging.by_pods
            else "the revision is being resolved"
        )
        message = f"{waits}: {unresolved or 'see RevisionPinned'}"[:MESSAGE_MAX]
        return StagingPhase("Pending", _obstacle(staging) or message)
    if current.by_pods:
        how = (
            f"nodes pull {current.image}"
            if current.image
            else "each pod fills its own volume before its engine starts"
        )
        return StagingPhase("Ready", _obstacle(staging) or f"nothing to stage: {how}")
    if current.ready_at:
        return StagingPhase("Ready", _obstacle(staging) or current.warning)
    if current.failed:
        return StagingPhase("Failed", _failure(staging, current))
    return _unready_phase(staging, current)


def _unready_phase(staging: ClusterStaging, current: CacheCopy) -> StagingPhase:
    """Return the phase of an artifact that is neither complete nor failed."""
    volumes = staging.observed.volumes if staging.observed else []
    jobs = staging.observed.jobs if staging.observed and current.job_uid else []
    volume = next((each for each in volumes if each.claim == current.claim), None)
    job = next((each for each in jobs if each.uid == current.job_uid), None)
    obstacle = _obstacle(staging) or current.missing_credential
    if job and not obstacle:
        obstacle = job.blocker
    if volume and volume.phase == BOUND:
        waits = "" if job else "waits for its Job"
        return StagingPhase("Hydrating", obstacle or waits)
    if job and volume and volume.phase == "Pending":
        claim = (
            f"volume claim {current.claim} of storage class {staging.storage_class} "
            "is not bound"
        )
        if obstacle:
            return StagingPhase("Hydrating", f"{obstacle}; {claim}")
        return StagingPhase(
            "Hydrating", f"waits for the first consumer of its volume: {claim}"
        )
    waits = (
        f"waits for volume claim {current.claim}, which is {volume.phase}"
        if volume
        else "waits for its volume claim"
    )
    return StagingPhase("Pending", obstacle or waits)


def _failure(staging: ClusterStaging, copy: CacheCopy) -> str:
    code = f"exit code {copy.exit_code}: " if copy.exit_code else ""
    then = (
        "no further attempt until the spec or the credential changes"
        if is_final(copy, staging.site)
        else f"next attempt at {copy.retry_at}"
    )
    text = f"{code}{copy.failure}".encode()[: MESSAGE_MAX - len(then) - 3]
    return f"{text.decode(errors='ignore')} ({then})"


def _obstacle(staging: ClusterStaging) -> str:
    if staging.error.type:
        return f"{staging.error.type}: {staging.error.message}"[:MESSAGE_MAX]
    why = why_not(staging)
    return f"InferenceCluster {staging.site.name} {why}" if why else ""


def by_name(stagings: Mapping[str, ClusterStaging]) -> list[ClusterStaging]:
    """Return the clusters in the order in which they are shown."""
    return [stagings[name] for name in sorted(stagings)]


def cluster_phases(
    stagings: Sequence[ClusterStaging], wanted: Mapping[str, str], unresolved: str = ""
) -> list[ClusterPhase]:
    """Return the phase on every cluster.

    Clusters that are unselected or being deleted do not count for the conditions.
    """
    return [
        ClusterPhase(
            staging.site.name,
            *phase_of(staging, unresolved),
            selects(wanted, staging.site) and not staging.site.deleting,
        )
        for staging in stagings
    ]


def no_clusters(state: CacheState) -> str:
    """Return why a cache has no usable cluster."""
    wanted = ", ".join(
        f"{key}={value}" for key, value in sorted(match_labels(state.spec).items())
    )
    if state.unready:
        named = [
            f"InferenceCluster {name} {why}"
            for name, why in sorted(state.unready.items())[:_NAMED_MAX]
        ]
        more = len(state.unready) - _NAMED_MAX
        if more > 0:
            named.append(f"{more} more")
        return (
            "nothing can be staged on the clusters that clusterSelector matches: "
            f"{'; '.join(named)}"
        )
    return (
        f"no InferenceCluster has the labels of clusterSelector: {wanted}"
        if wanted
        else "there is no InferenceCluster"
    )


def unresolved(pin: PinnedRevision | None) -> str:
    """Return why the revision could not be resolved, or ""."""
    return pin.problem if pin and not pin.revision else ""


def matched_verdict(phases: Sequence[ClusterPhase], no_clusters: str) -> Verdict:
    """Return `ClustersMatched`. `no_clusters` explains why there is none."""
    count = sum(1 for each in phases if each.selected)
    if not count:
        return Verdict(FALSE, "NoClusters", no_clusters[:MESSAGE_MAX])
    return Verdict(TRUE, "Matched", f"{count} clusters")


def artifact_verdict(
    phases: Sequence[ClusterPhase], missing_credential: str, no_clusters: str = ""
) -> Verdict:
    """Return `ArtifactReady`.

    `missing_credential` names a missing credential, `no_clusters` explains why there is
    no cluster. Both may be empty.
    """
    selected = [each for each in phases if each.selected]
    ready = [each for each in selected if each.phase == "Ready"]
    failed = [each for each in selected if each.phase == "Failed"]
    if not selected:
        return Verdict(FALSE, "NoClusters", no_clusters[:MESSAGE_MAX])
    if len(ready) == len(selected):
        return Verdict(
            TRUE,
            "Staged",
            "; ".join(
                f"{each.cluster}: {each.message}" for each in ready if each.message
            ),
        )
    if missing_credential:
        return Verdict(FALSE, "AuthSecretMissing", missing_credential)
    if failed:
        return Verdict(
            FALSE,
            "Failed",
            "; ".join(f"{each.cluster}: {each.message}" for each in failed),
        )
    waits = "; ".join(_waiting(each) for each in selected if each.phase != "Ready")
    if ready:
        return Verdict(
            FALSE,
            "Partial",
            f"{len(ready)} of {len(selected)} clusters are staged; {waits}",
        )
    return Verdict(FALSE, "Hydrating", waits)


def _waiting(each: ClusterPhase) -> str:
    message = f", {each.message}" if each.message else ""
    return f"{each.cluster}: {each.phase}{message}"


def ready_verdict(artifact: Verdict, *, was_ready: bool) -> Verdict:
    """Return `Ready`, which follows `ArtifactReady`."""
    if artifact.status == TRUE:
        return Verdict(TRUE, "Available", "")
    return Verdict(
        FALSE,
        "Unavailable" if was_ready else "Creating",
        f"{artifact.reason}: {artifact.message}",
    )


def revision_verdict(pin: PinnedRevision) -> Verdict:
    if pin.revision and not pin.problem:
        return Verdict(TRUE, "Resolved", pin.revision)
    if pin.revision:
        fallback = f"revision {pin.revision} is kept"
    elif pin.waits_for_source:
        fallback = (
            f"nothing is staged before attempt {pin.errors + 1} of {RESOLVE_ATTEMPTS}"
        )
    else:
        fallback = (
            "one cluster stages the reference of the spec, "
            "and all others stage the revision that it finds"
        )
    again = f"; resolved again at {pin.retry_at}" if pin.retry_at else ""
    return Verdict(FALSE, "Unresolved", f"{pin.problem}; {fallback}{again}")


def removal_progress(stagings: Sequence[ClusterStaging]) -> str:
    """Return the clusters that still have objects of a deleted cache, with problems."""
    clusters = [f"{staging.site.name}{_prevented(staging)}" for staging in stagings]
    return f"removing Job, credential and volume from {'; '.join(clusters)}"


def _prevented(staging: ClusterStaging) -> str:
    if staging.error.type:
        return f" ({staging.error.type}: {staging.error.message})"
    return "" if staging.site.connection else " (not connected)"


def status_fields(
    state: CacheState, phases: Sequence[ClusterPhase], retained: Sequence[str]
) -> dict[str, Any]:
    """Return the kind's own status fields.

    `retained` names unselected clusters whose volume is still in use.
    """
    selected = [each for each in phases if each.selected]
    ready = sum(1 for each in selected if each.phase == "Ready")
    status: dict[str, Any] = {
        "summary": {"ready": f"{ready}/{len(selected)}"},
        "clusters": [
            _cluster(state.stagings[each.cluster], each, retained) for each in phases
        ],
    }
    if state.pin and state.pin.revision:
        status["resolvedRevision"] = state.pin.revision
    return status


def _cluster(
    staging: ClusterStaging, shown: ClusterPhase, retained: Sequence[str]
) -> dict[str, Any]:
    copy = staging.copies[0] if staging.copies else None
    row: dict[str, Any] = {"name": shown.cluster, "phase": shown.phase}
    if shown.message:
        row["message"] = shown.message
    if copy:
        if not copy.by_pods:
            row["claimName"] = copy.claim
        row |= {"artefactKey": copy.artifact_key, "attempts": copy.attempts}
        row |= {
            field: value
            for field, value in (
                ("revision", copy.commit or copy.revision),
                ("startedAt", copy.started_at),
                ("readyAt", copy.ready_at),
            )
            if value
        }
    if shown.cluster in retained:
        row["retained"] = True
    return row


def details_table(phases: Sequence[ClusterPhase]) -> list[str]:
    """Return the phases as a Markdown table."""
    rows = [
        f"| {each.cluster} | {each.phase} | {each.message.replace('|', '/')} |"
        for each in phases
    ]
    return ["| Cluster | Phase | |", "|---|---|---|", *rows, ""] if rows else []
