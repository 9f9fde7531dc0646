"""What a ModelCache says of itself: phases and conditions, as pure readings of its state."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from activities.observe.cache import BOUND
from workflows.entity.conditions import FALSE, TRUE
from workflows.model_cache.plan import Wanted, chooses, is_final
from workflows.model_cache.state import ClusterStaging, Copy, Pin

MESSAGE_MAX = 1024

# (status, reason, message) of a condition.
Verdict = tuple[str, str, str]


class Standing(NamedTuple):
    """One cluster in a word and a sentence; `matched`: it counts."""

    name: str
    phase: str
    message: str
    matched: bool


def phase_of(place: ClusterStaging) -> tuple[str, str]:
    """Give the phase of the artefact that is wanted on a cluster now, and what it waits for or why it failed."""
    current = place.copies[0] if place.copies else None
    if current is None:
        return "Pending", _obstacle(place) or "waits for its turn"
    if current.ready_at:
        return "Ready", _note(place, current)
    if current.failed:
        return "Failed", _failure(place, current)
    seen = place.observed
    volume = next((volume for volume in seen.volumes if volume.claim == current.claim), None) if seen else None
    job = next((job for job in seen.jobs if job.uid == current.job), None) if seen and current.job else None
    obstacle = _obstacle(place) or current.missing or (job.blocker if job else "")
    if volume and volume.phase == BOUND:
        return "Hydrating", obstacle or ("" if job else "waits for its Job")
    if job and volume and volume.phase == "Pending":
        return "Hydrating", obstacle or "waits for the first consumer of its volume"
    waits = f"waits for volume claim {current.claim}, which is {volume.phase}" if volume else "waits for its volume claim"
    return "Pending", obstacle or waits


def _failure(place: ClusterStaging, copy: Copy) -> str:
    code = f"exit code {copy.exit_code}: " if copy.exit_code else ""
    then = "no further attempt until spec or credential change" if is_final(copy, place.site) else f"tried again at {copy.retry_at}"
    text = f"{code}{copy.failure}".encode()[: MESSAGE_MAX - len(then) - 3].decode(errors="ignore")
    return f"{text} ({then})"


def _obstacle(place: ClusterStaging) -> str:
    kind, message = place.error
    if kind:
        return f"{kind}: {message}"[:MESSAGE_MAX]
    if place.site.connection is None:
        return f"InferenceCluster {place.site.name} is not connected"
    if not place.site.storage_class_name:
        return f"InferenceCluster {place.site.name} reports no storage class for caches just now"
    return ""


def _note(place: ClusterStaging, copy: Copy) -> str:
    return _obstacle(place) or copy.warning


def standings(places: Sequence[ClusterStaging], wanted: Wanted | None) -> list[Standing]:
    """Give every place in a word; one that the selector no longer chooses, or that goes, does not count."""
    found = []
    for place in places:
        phase, message = phase_of(place)
        matched = wanted is not None and chooses(wanted.match_labels, place.site) and not place.site.leaving
        found.append(Standing(place.site.name, phase, message, matched))
    return found


def matched_verdict(found: Sequence[Standing]) -> Verdict:
    """Judge `ClustersMatched`."""
    count = sum(1 for each in found if each.matched)
    if not count:
        return FALSE, "NoClusters", "no connected cluster that the selector chooses reports a storage class for caches"
    return TRUE, "Matched", f"{count} clusters"


def artifact_verdict(found: Sequence[Standing], missing: str) -> Verdict:
    """Judge `ArtifactReady`; `missing` says which credential is, empty if none is."""
    matched = [each for each in found if each.matched]
    ready = [each for each in matched if each.phase == "Ready"]
    failed = [each for each in matched if each.phase == "Failed"]
    if not matched:
        return FALSE, "NoClusters", ""
    if len(ready) == len(matched):
        return TRUE, "Staged", "; ".join(f"{each.name}: {each.message}" for each in ready if each.message)
    if missing:
        return FALSE, "AuthSecretMissing", missing
    if failed:
        return FALSE, "Failed", "; ".join(f"{each.name}: {each.message}" for each in failed)
    waits = "; ".join(_waiting(each) for each in matched if each.phase != "Ready")
    if ready:
        return FALSE, "Partial", f"{len(ready)} of {len(matched)} clusters are staged; {waits}"
    return FALSE, "Hydrating", waits


def _waiting(each: Standing) -> str:
    return f"{each.name}: {each.phase}{f', {each.message}' if each.message else ''}"


def pin_verdict(pin: Pin) -> Verdict:
    """Judge `RevisionPinned`."""
    if pin.revision and not pin.problem:
        return TRUE, "Resolved", pin.revision
    kept = f"revision {pin.revision} stays" if pin.revision else "the revision is used as it is written"
    return FALSE, "Unresolved", f"{pin.problem}; {kept}"


def shown(places: Sequence[ClusterStaging], found: Sequence[Standing], pin: Pin | None, retained: Sequence[str]) -> dict[str, Any]:
    """Give the kind's own status fields."""
    ready = sum(1 for each in found if each.matched and each.phase == "Ready")
    status: dict[str, Any] = {
        "summary": {"ready": f"{ready}/{sum(1 for each in found if each.matched)}"},
        "clusters": [_cluster(place, each, retained) for place, each in zip(places, found, strict=True)],
    }
    if pin and pin.revision:
        status["resolvedRevision"] = pin.revision
    return status


def _cluster(place: ClusterStaging, standing: Standing, retained: Sequence[str]) -> dict[str, Any]:
    copy = place.copies[0] if place.copies else None
    row: dict[str, Any] = {"name": standing.name, "phase": standing.phase}
    if standing.message:
        row["message"] = standing.message
    if copy:
        row |= {"claimName": copy.claim, "artefactKey": copy.artefact_key, "attempts": copy.attempts}
        row |= {
            field: value
            for field, value in (("revision", copy.revision), ("startedAt", copy.started_at), ("readyAt", copy.ready_at))
            if value
        }
    if place.site.name in retained:
        row["retained"] = True
    return row
