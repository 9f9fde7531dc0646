"""What a cache does next on a cluster, and what it says of it: tables over pure functions (spec/workloads.md 5.5 to 5.9, 14)."""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from api_types.messages.caches import CacheSite
from api_types.messages.cluster_work import Connection
from api_types.messages.observations import ObservedCache, ObservedJob, ObservedVolume
from workflows.model_cache.plan import Wanted, absorb, can_begin, follow, must_leave, next_deed, next_look, reset_backoff
from workflows.model_cache.state import ClusterStaging, Copy, Pin
from workflows.model_cache.status import Standing, artifact_verdict, matched_verdict, phase_of, pin_verdict, shown, standings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONNECTION = Connection(cluster="eu-1", namespace="modelplane-system", name="eu-1")
WANTED = Wanted(artefact_key="key-1", claim="claim-1", revision="c1", generation=1, match_labels={"tier": "gold"})


def a_site(name: str = "eu-1", **fields: Any) -> CacheSite:
    """A connected cluster of the gold tier, with a class for caches."""
    plain = {"uid": "u", "sequence": 1, "labels": {"tier": "gold"}, "connection": CONNECTION, "storage_class_name": "rwx"}
    return CacheSite(name=name, **{**plain, **fields})


def a_copy(**fields: Any) -> Copy:
    """An artefact as it was applied, with a Job under way."""
    return Copy(**{"artefact_key": "key-1", "claim": "claim-1", "applied": 1, "digest": "d", "job": "j1", "attempts": 1, **fields})


def ready(**fields: Any) -> Copy:
    return a_copy(**{"ready_at": "2026-01-01T00:00:00Z", **fields})


def failed(code: int = 1, **fields: Any) -> Copy:
    return a_copy(**{"spent": "j1", "exit_code": code, "failure": "why", "retry_at": "2026-01-01T00:01:00Z", **fields})


def a_place(*copies: Copy, **fields: Any) -> ClusterStaging:
    return ClusterStaging(**{"site": a_site(), "copies": list(copies), **fields})


def seen(*, phase: str = "Bound", job: str = "", uid: str = "j1", digest: str = "d", **more: Any) -> ObservedCache:
    """A volume claim in a phase (empty: none), and a Job in a state (empty: none)."""
    volumes = [ObservedVolume(claim="claim-1", phase=phase, digest=digest)] if phase else []
    jobs = [ObservedJob(claim="claim-1", uid=uid, state=job, **more)] if job else []
    return ObservedCache(cluster="eu-1", volumes=volumes, jobs=jobs)


# --- what is done next ----------------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A place, and the step that must follow: kind, claim, and what it does."""

    story: str
    place: ClusterStaging
    step: tuple[str, str, Any] | None
    used: frozenset[str] = frozenset()
    wanted: Wanted = WANTED
    now: datetime = NOW


LATER = NOW + timedelta(minutes=5)
OLD = ready(artefact_key="key-0", claim="claim-0")
CASES = [
    Case(
        "a cluster with nothing is brought its volume and a Job",
        a_place(Copy(artefact_key="key-1", claim="claim-1")),
        ("stage", "claim-1", True),
    ),
    Case("wkl-87 without its credential only the volume is kept", a_place(a_copy(job="", missing="no Secret")), None),
    Case("a download that is under way is left alone", a_place(a_copy()), None),
    Case("wkl-89 once staged, Job and credential go", a_place(ready(tidy=False)), ("tidy", "claim-1", (1, 2))),
    Case("wkl-90 what is staged stays, though its Job is gone", a_place(ready()), None),
    Case(
        "wkl-92 a token leaves with the failed attempt, the Job stays for its log", a_place(failed(tidy=False)), ("tidy", "claim-1", (2,))
    ),
    Case("wkl-92 a failed download waits for its time", a_place(failed()), None),
    Case("wkl-92 and is then tried again", a_place(failed()), ("stage", "claim-1", True), now=LATER),
    *(Case(f"wkl-92 exit code {code} is final", a_place(failed(code)), None, now=LATER) for code in (41, 42, 43)),
    Case("as many attempts as allowed are enough", a_place(failed(attempts=3), site=a_site(attempts_max=3)), None, now=LATER),
    Case("one attempt fewer is not", a_place(failed(attempts=2), site=a_site(attempts_max=3)), ("stage", "claim-1", True), now=LATER),
    Case("a new generation is applied without another download", a_place(ready(applied=0)), ("stage", "claim-1", False)),
    Case("a new generation does not disturb a download", a_place(a_copy(applied=0)), ("stage", "claim-1", True)),
    Case("wkl-95 an old volume in use stays beside the new one", a_place(ready(), OLD), None, used=frozenset({"claim-0"})),
    Case(
        "wkl-95 an old volume goes when the new one is whole and nobody mounts it", a_place(ready(), OLD), ("leave", "claim-0", (1, 2, 3))
    ),
    Case("wkl-95 until then it is what new replicas mount", a_place(a_copy(), OLD), None),
    Case(
        "an artefact that was never whole makes way at once",
        a_place(a_copy(), a_copy(artefact_key="key-0", claim="claim-0")),
        ("leave", "claim-0", (1, 2, 3)),
    ),
    Case("wkl-96 a class that disappears costs nothing", a_place(ready(applied=0), site=a_site(storage_class_name="")), None),
    Case("a cluster without a connection is waited for", a_place(ready(tidy=False), site=a_site(connection=None)), None),
    Case("a step that failed waits for its time", a_place(ready(tidy=False), retry_at="2026-01-01T00:00:10+00:00"), None),
    Case(
        "wkl-97 a cluster that is no longer chosen keeps what is mounted",
        a_place(ready(), unmatched_since="2025-12-31T00:00:00Z"),
        None,
        used=frozenset({"claim-1"}),
    ),
    Case("wkl-97 and what is not, for a while", a_place(ready(), unmatched_since="2025-12-31T23:59:00Z"), None),
    Case("wkl-97 and then it goes", a_place(ready(), unmatched_since="2025-12-31T23:50:00Z"), ("leave", "claim-1", (1, 2, 3))),
    Case(
        "nothing is brought to a cluster that is no longer chosen", a_place(a_copy(applied=0), unmatched_since="2025-12-31T23:59:00Z"), None
    ),
    Case("a cluster that is being deleted is left", a_place(ready(), site=a_site(leaving=True)), ("leave", "claim-1", (1, 2, 3))),
    Case("but not while somebody mounts the volume there", a_place(ready(), site=a_site(leaving=True)), None, used=frozenset({"claim-1"})),
    Case(
        "wkl-98 a deleted cache leaves, the oldest volume first",
        a_place(ready(), OLD),
        ("leave", "claim-0", (1, 2, 3)),
        wanted=WANTED._replace(deleting=True),
    ),
    Case(
        "wkl-98 but takes no volume that is mounted",
        a_place(ready()),
        None,
        used=frozenset({"claim-1"}),
        wanted=WANTED._replace(deleting=True),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_next_step_on_a_cluster(case: Case) -> None:
    deed = next_deed(case.place, case.wanted, case.used, case.now)
    assert (deed and (deed.kind, deed.copy.claim, deed.hydrate if deed.kind == "stage" else deed.steps)) == case.step


def test_wkl_84_nothing_is_brought_to_a_cluster_without_a_class() -> None:
    place = a_place(site=a_site(storage_class_name=""))
    follow(place, WANTED, NOW)
    assert (place.copies, can_begin(place.site)) == ([], False)


def test_wkl_95_another_artefact_comes_beside_the_one_there_and_a_return_finds_the_old_one() -> None:
    place = a_place(ready())
    follow(place, WANTED._replace(artefact_key="key-2", claim="claim-2"), NOW)
    assert [copy.claim for copy in place.copies] == ["claim-2", "claim-1"]
    assert place.published is place.copies[1]
    follow(place, WANTED, NOW)
    assert [copy.claim for copy in place.copies] == ["claim-1", "claim-2"]


def test_wkl_97_the_clock_runs_from_when_the_selector_let_go_and_stops_when_it_chooses_again() -> None:
    place = a_place(ready(), site=a_site(labels={}))
    follow(place, WANTED, NOW)
    assert next_look(place, frozenset()) == NOW + timedelta(seconds=600)
    assert next_look(place, frozenset({"claim-1"})) is None
    assert must_leave(place, WANTED, frozenset(), NOW + timedelta(seconds=600))
    place.site = a_site()
    follow(place, WANTED, LATER)
    assert (place.unmatched_since, next_look(place, frozenset())) == ("", None)


def test_a_failed_download_is_looked_at_when_its_time_comes() -> None:
    assert next_look(a_place(failed()), frozenset()) == NOW + timedelta(minutes=1)
    assert next_look(a_place(failed(42)), frozenset()) is None


# --- what is heard --------------------------------------------------------------------------------------------------------------------


def test_wkl_89_a_bound_volume_and_a_complete_job_are_a_staged_artefact() -> None:
    place = a_place(a_copy())
    assert absorb(place, seen(job="Complete"), NOW) == []
    assert place.copies[0].ready_at == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("what", [seen(phase="Pending", job="Complete"), seen(job="Complete", uid="another"), seen(job="Running")])
def test_anything_less_is_not(what: ObservedCache) -> None:
    place = a_place(a_copy())
    absorb(place, what, NOW)
    assert place.copies[0].ready_at == ""


@pytest.mark.parametrize("phase", ["", "Lost", "Pending", "Terminating"])
def test_wkl_90_a_lost_volume_is_no_artefact_any_more(phase: str) -> None:
    place = a_place(ready())
    (news,) = absorb(place, seen(phase=phase), NOW)
    assert "has to be filled again" in news
    assert (place.copies[0].ready_at, place.copies[0].job) == ("", "")


def test_a_picture_older_than_our_last_step_proves_no_loss() -> None:
    place = a_place(ready())
    assert absorb(place, seen(phase=""), NOW, fresh=False) == []
    assert place.copies[0].ready_at


def test_wkl_92_a_failure_is_kept_with_its_reason_and_the_wait_grows() -> None:
    waits = []
    for attempt in range(1, 8):
        place = a_place(a_copy(attempts=attempt))
        absorb(place, seen(job="Failed", exit_code=1, message="the hub answered 503"), NOW)
        waits.append((datetime.fromisoformat(place.copies[0].retry_at) - NOW).total_seconds() / 60)
        assert place.copies[0].failed
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_wkl_92_an_exit_code_that_is_told_later_than_the_failure_still_counts() -> None:
    place = a_place(a_copy())
    absorb(place, seen(job="Failed"), NOW)
    absorb(place, seen(job="Failed", exit_code=42, message="gone"), NOW + timedelta(seconds=1))
    assert (place.copies[0].exit_code, place.copies[0].failure) == (42, "gone")
    assert next_deed(place, WANTED, frozenset(), LATER) is None


def test_a_job_that_somebody_deleted_is_made_again() -> None:
    place = a_place(a_copy())
    absorb(place, seen(job="Running"), NOW)
    absorb(place, seen(), NOW)
    deed = next_deed(place, WANTED, frozenset(), NOW)
    assert deed
    assert (deed.kind, deed.hydrate) == ("stage", True)


def test_a_job_that_was_not_seen_yet_is_not_taken_for_deleted() -> None:
    place = a_place(a_copy())
    absorb(place, seen(), NOW)
    assert place.copies[0].job == "j1"


def test_a_hand_on_the_volume_claim_is_put_right_without_another_download() -> None:
    place = a_place(ready())
    absorb(place, seen(digest="touched"), NOW)
    deed = next_deed(place, WANTED, frozenset(), NOW)
    assert deed
    assert (deed.kind, deed.hydrate) == ("stage", False)


def test_somebodys_word_forgives_even_a_final_failure() -> None:
    copy = failed(42, attempts=9)
    reset_backoff(copy)
    assert next_deed(a_place(copy), WANTED, frozenset(), NOW) is not None


# --- what is said ---------------------------------------------------------------------------------------------------------------------

PHASES = [
    ("nothing yet", a_place(), "Pending", "waits for its turn"),
    ("no claim seen", a_place(a_copy()), "Pending", "waits for its volume claim"),
    ("claim not bound, no Job", a_place(a_copy(job=""), observed=seen(phase="Pending")), "Pending", "which is Pending"),
    ("claim bound, Job running", a_place(a_copy(), observed=seen(job="Running")), "Hydrating", ""),
    ("claim waits for its first consumer", a_place(a_copy(), observed=seen(phase="Pending", job="Running")), "Hydrating", "first consumer"),
    ("its pod cannot run", a_place(a_copy(), observed=seen(job="Running", blocker="no room")), "Hydrating", "no room"),
    ("wkl-87 no token", a_place(a_copy(job="", missing="no Secret"), observed=seen()), "Hydrating", "no Secret"),
    ("wkl-92 failed", a_place(failed()), "Failed", "exit code 1: why (tried again at 2026-01-01T00:01:00Z)"),
    ("wkl-92 failed for good", a_place(failed(43)), "Failed", "exit code 43: why (no further attempt until spec or credential change)"),
    ("wkl-89 staged", a_place(ready()), "Ready", ""),
    ("wkl-96 staged, and the class is gone", a_place(ready(), site=a_site(storage_class_name="")), "Ready", "no storage class"),
    ("the cluster does not answer", a_place(a_copy(), error=("ClusterUnreachable", "silence")), "Pending", "ClusterUnreachable: silence"),
    ("a volume that cannot grow", a_place(ready(warning="ExpansionUnsupported: no")), "Ready", "ExpansionUnsupported"),
]  # fmt: skip


@pytest.mark.parametrize(("story", "place", "phase", "message"), PHASES, ids=[row[0] for row in PHASES])
def test_a_cluster_in_a_word_and_a_sentence(story: str, place: ClusterStaging, phase: str, message: str) -> None:
    found, text = phase_of(place)
    assert found == phase, story
    assert message in text if message else text == ""


def test_wkl_92_a_long_failure_is_cut_to_one_kib() -> None:
    _, text = phase_of(a_place(failed(1, failure="x" * 5000)))
    assert len(text.encode()) <= 1024
    assert text.endswith("(tried again at 2026-01-01T00:01:00Z)")


LITERAL = "the revision is used as it is written"


def standing(name: str, phase: str, message: str = "", *, matched: bool = True) -> Standing:
    return Standing(name, phase, message, matched)


VERDICTS = [
    ("wkl-88 no clusters, and nobody asks for a token", [], "no Secret", ("False", "NoClusters")),
    ("no cluster that counts", [standing("eu", "Ready", matched=False)], "", ("False", "NoClusters")),
    ("wkl-89 all staged", [standing("eu", "Ready"), standing("us", "Ready")], "", ("True", "Staged")),
    ("all staged, whatever became of the token", [standing("eu", "Ready")], "no Secret", ("True", "Staged")),
    ("wkl-87 a token is missing", [standing("eu", "Ready"), standing("us", "Hydrating")], "no Secret", ("False", "AuthSecretMissing")),
    ("wkl-92 one failed", [standing("eu", "Ready"), standing("us", "Failed", "why")], "", ("False", "Failed")),
    ("wkl-91 some staged", [standing("eu", "Ready"), standing("us", "Hydrating")], "", ("False", "Partial")),
    ("none staged", [standing("eu", "Pending"), standing("us", "Hydrating")], "", ("False", "Hydrating")),
]


@pytest.mark.parametrize(("story", "found", "missing", "verdict"), VERDICTS, ids=[row[0] for row in VERDICTS])
def test_the_artefact_in_a_condition(story: str, found: list[Standing], missing: str, verdict: tuple[str, str]) -> None:
    assert artifact_verdict(found, missing)[:2] == verdict, story


def test_wkl_91_the_summary_counts_the_clusters_that_are_chosen() -> None:
    gone = a_place(ready(), site=a_site("uk-1", labels={}))
    places = [a_place(ready()), a_place(a_copy(), site=a_site("us-1"), observed=seen(job="Running")), gone]
    found = standings(places, WANTED)
    status = shown(places, found, Pin(reference="r", revision="c1"), ["uk-1"])
    assert status["summary"] == {"ready": "1/2"}
    assert artifact_verdict(found, "")[1:] == ("Partial", "1 of 2 clusters are staged; us-1: Hydrating")
    assert [(row["name"], row["phase"], row.get("retained", False)) for row in status["clusters"]] == [
        ("eu-1", "Ready", False),
        ("us-1", "Hydrating", False),
        ("uk-1", "Ready", True),
    ]
    assert status["resolvedRevision"] == "c1"


def test_wkl_88_a_cache_that_no_cluster_can_stage_says_so() -> None:
    assert matched_verdict([])[:2] == ("False", "NoClusters")
    assert matched_verdict([standing("eu", "Pending")]) == ("True", "Matched", "1 clusters")


@pytest.mark.parametrize(
    ("pin", "verdict"),
    [
        pytest.param(Pin(reference="r", revision="c1"), ("True", "Resolved", "c1"), id="wkl-85 pinned"),
        pytest.param(Pin(reference="r", problem="silence"), ("False", "Unresolved", f"silence; {LITERAL}"), id="not known"),
        pytest.param(
            Pin(reference="r", revision="c1", problem="silence"), ("False", "Unresolved", "silence; revision c1 stays"), id="not renewed"
        ),
    ],
)
def test_the_pin_in_a_condition(pin: Pin, verdict: tuple[str, str, str]) -> None:
    assert pin_verdict(pin) == verdict
