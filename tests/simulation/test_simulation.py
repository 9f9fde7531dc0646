"""Seeds of the simulation, and broken products that it has to find.

`make simulate` runs as many seeds as wanted. A seed that found a defect is kept in `KEPT`.
"""

import random
from itertools import islice
from typing import NamedTuple

import pytest
from temporalio import workflow

from scheduler.fleet.ledger import Ledger
from scheduler.model.inputs import LedgerEntry
from tests.simulation.world import Result, simulate
from workflows.fleet_scheduler.inbox import Inbox

pytestmark = pytest.mark.slow

SEEDS_OF_A_TEST = 10
SEEDS_UNTIL_FOUND = 20
DAYS = 0.03
FLEETS = (*("tiny",) * 7, "small")
"""Small fleets take several times as long: every eighth seed has one."""


class Kept(NamedTuple):
    """A seed that found a defect: `found` says which one. `make lives` runs costly ones."""

    seed: int
    days: float
    fleet: str
    found: str
    costly: bool = False


KEPT = [
    Kept(
        28,
        DAYS,
        "tiny",
        "after the clock went back a new watch had a lower number than attempts of the last one",
    ),
    Kept(
        4,
        0.05,
        "tiny",
        "a cluster whose deletion outlasted its resync forgot its classes, which stayed in use",
    ),
    Kept(
        94,
        0.05,
        "tiny",
        "the gateway did not install its GatewayClass again, which had been deleted by hand",
    ),
    Kept(
        35,
        DAYS,
        "tiny",
        "a forced deletion listed objects of the stack as left behind without their namespace",
    ),
    Kept(
        39,
        DAYS,
        "small",
        "a watch did not signal a replica again whose workflow had been terminated meanwhile",
    ),
    Kept(
        53,
        DAYS,
        "tiny",
        "a late observation of a deleted cluster made a cache deaf for its successor",
    ),
    Kept(
        43,
        DAYS,
        "tiny",
        "after the clock went back by 2.5 hours a cluster waited for a report of the scheduler",
    ),
    Kept(
        51,
        DAYS,
        "tiny",
        "a cache released a deleted cluster from a terminated one, and did not list what that left",
    ),
    Kept(
        54,
        DAYS,
        "tiny",
        "the rollout of an engine with more copies of fewer devices each waited for its old copy",
    ),
    Kept(
        63,
        DAYS,
        "small",
        "replicas never heard that a cluster which was being deleted answered again",
    ),
    Kept(
        101,
        DAYS,
        "tiny",
        "a forced deletion did not list releases whose installation was running",
    ),
    Kept(
        105,
        DAYS,
        "tiny",
        "a look at the stack that began with the deletion of its cluster held up the removal",
    ),
    Kept(
        109,
        DAYS,
        "tiny",
        "a release that somebody deleted during the installation was not installed again",
    ),
    Kept(
        39,
        DAYS,
        "tiny",
        "a replica that was reset to its first task during its deletion left its objects",
    ),
    Kept(
        47,
        DAYS,
        "tiny",
        "without its credential a cache forgot the Job and the token of an earlier download",
    ),
    Kept(
        63,
        DAYS,
        "tiny",
        "the deletion of a cache asked its users each minute again after it continued as new",
    ),
    Kept(
        176,
        DAYS,
        "tiny",
        "a deleted cluster left a stack that had been given to it after the last preflight",
    ),
    Kept(
        159,
        DAYS,
        "tiny",
        "a cache that was reset forgot the claim of another artifact, and left it",
    ),
    Kept(
        142,
        DAYS,
        "tiny",
        "a shrinking replica's nodes were assigned to another before its old pods were gone",
    ),
    Kept(
        204,
        0.25,
        "tiny",
        "a cache kept the volume of another artifact of a terminated run of its name",
        costly=True,
    ),
    Kept(
        44,
        0.25,
        "tiny",
        "a replica that ended by force did not list the EndpointSlice that it left",
        costly=True,
    ),
    Kept(
        7001,
        0.02,
        "tiny",
        "a replica that was reset in its teardown decided otherwise in the replay before it",
    ),
    Kept(
        1153,
        DAYS,
        "tiny",
        "nobody handed the stack that a forced deletion left to the next cluster of the name",
    ),
    Kept(
        2280,
        0.03,
        "tiny",
        "a cache that lost one cluster dropped all others, and left its volumes there unlisted",
    ),
    Kept(
        6010,
        DAYS,
        "tiny",
        "a late request to start a replica started it again after it had completed",
    ),
    Kept(
        5992,
        DAYS,
        "tiny",
        "a gateway under deletion did not report that its control cluster answered again",
    ),
    Kept(
        7043,
        DAYS,
        "tiny",
        "a cache left the volume of a terminated run that visibility did not list yet",
    ),
    Kept(
        5984,
        DAYS,
        "tiny",
        "a cluster that was reset during its deletion forgot its stack, and left it",
    ),
    Kept(
        4843,
        DAYS,
        "tiny",
        "two steps of a pass set one condition differently, and the workflow task never ended",
        costly=True,
    ),
    Kept(
        10020,
        0.03,
        "tiny",
        "a replica repaired the drift of an object that it no longer rendered, without end",
    ),
    Kept(
        9249,
        0.03,
        "tiny",
        "a request waited although the replicas that it may preempt had passed their cooldown",
    ),
    Kept(
        9134,
        0.03,
        "tiny",
        "a cluster that was deleted before its first preflight left the stack of a terminated one",
    ),
    Kept(
        9867,
        0.03,
        "tiny",
        "a cache that was reset did not list the Job and the Secret that it left",
    ),
]


def _fleet_of(seed: int) -> str:
    return FLEETS[seed % len(FLEETS)]


COSTLY = frozenset(
    {1, 6, 8, 17, 20, 31, 32, 40, 47, 66, 71, 72, 77, 95, 99, 102, 103, 111, 114}
    | {115, 117, 119, 127, 128}
)
"""Seeds that take as long as several others. `make lives` runs them."""
_NOT_HERE = {
    *COSTLY,
    *(kept.seed for kept in KEPT if (kept.days, kept.fleet) == (DAYS, _fleet_of(kept.seed))),
}
SEEDS = [seed for seed in range(1, 131) if seed not in _NOT_HERE]


def simulated(seed: int) -> Result:
    """Simulate a seed as every run of the tests does."""
    return simulate(seed, DAYS, _fleet_of(seed))


def report(results: list[Result]) -> str:
    """Show all findings, each with the last steps before it and the command that repeats it."""
    return "\n\n".join(
        "\n".join((str(result), *result.steps, result.finding, result.command))
        for result in results
        if result.finding
    )


def refuse(findings: str) -> None:
    """Fail with the whole text of the findings, which pytest would cut in a comparison."""
    if findings:
        pytest.fail(findings, pytrace=False)


@pytest.mark.parametrize("first", range(0, len(SEEDS), SEEDS_OF_A_TEST))
def test_fleets_keep_every_promise_under_failures(first: int) -> None:
    seeds = SEEDS[first : first + SEEDS_OF_A_TEST]
    refuse(report([simulated(seed) for seed in seeds]))


@pytest.mark.soak
@pytest.mark.parametrize("seed", sorted(COSTLY))
def test_a_costly_seed_keeps_every_promise(seed: int) -> None:
    refuse(report([simulated(seed)]))


@pytest.mark.parametrize(
    "kept",
    [pytest.param(kept, marks=[pytest.mark.soak] * kept.costly) for kept in KEPT],
    ids=lambda kept: f"{kept.seed}-{kept.days}",
)
def test_a_seed_that_found_a_defect_passes_now(kept: Kept) -> None:
    refuse(report([simulate(kept.seed, kept.days, kept.fleet)]))


def test_a_seed_is_one_run() -> None:
    first, second = (simulated(22) for _ in range(2))
    assert first.replays > 0
    assert (first.digest, first.count) == (second.digest, second.count)


def is_found_by(auditor: str) -> bool:
    """Simulate seeds until this auditor has a finding, or too many seeds have none.

    The run of a seed changes with the code, so no single seed is sure to show a defect.
    """
    seeds = (seed for seed in SEEDS if FLEETS[seed % len(FLEETS)] == "tiny")
    return any(auditor in simulated(seed).finding for seed in islice(seeds, SEEDS_UNTIL_FOUND))


def test_a_scheduler_that_loses_releases_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inbox, "_released", lambda *_: None)
    assert is_found_by("every_pod_is_charged")


def test_a_scheduler_that_charges_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    charge = Ledger._charge

    def charge_twice(ledger: Ledger, entry: LedgerEntry, sign: int) -> None:
        charge(ledger, entry, sign)
        if sign > 0:
            charge(ledger, entry, sign)

    monkeypatch.setattr(Ledger, "_charge", charge_twice)
    assert is_found_by("the_ledger_equals_a_recount")


def test_a_scheduler_that_charges_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "_charge", lambda *_: None)
    assert is_found_by("no_pool_is_overcommitted")


def test_a_workflow_that_decides_otherwise_in_a_replay_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_no_run = random.Random(1)  # noqa: S311
    monkeypatch.setattr(workflow, "random", lambda: of_no_run)
    assert is_found_by("nondeterminism")
