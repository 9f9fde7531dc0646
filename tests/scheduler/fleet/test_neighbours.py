"""Replicas are counted by labels and anti-affinity as they come and go."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from scheduler.fleet.ledger import Ledger, rebuilt
from scheduler.fleet.overlay import FleetOverlay
from scheduler.model.inputs import LedgerEntry
from scheduler.model.policy import AffinityTerm, PlacementPolicy, SpreadConstraint
from scheduler.placement.constraints import Constraints
from tests.scheduler.builders import (
    NOW,
    cluster,
    decided,
    deployment,
    fleet,
    put_replicas,
)

NAMESPACES = ("ml", "web")
LABELS = (
    (),
    (("app", "a"),),
    (("app", "a"), ("tier", "x")),
    (("app", "b"), ("tier", "x")),
    (("app", "b"),),
)
AVOIDS = (
    (),
    (("zone", (), (("app", "a"),)),),
    (("", ("ml",), (("tier", "x"),)), ("", (), ())),
)
WANTED = ({"app": "a"}, {"tier": "x"}, {"app": "b", "tier": "x"}, {"app": "none"})


def an_entry(dice: random.Random, number: int) -> LedgerEntry:
    identity = (NAMESPACES[number % 2], f"d-{number % 5}", dice.choice("abc"), number)
    return LedgerEntry(
        f"uid-{number}",
        *identity,
        f"r-{number}",
        (),
        labels=dice.choice(LABELS),
        avoids=dice.choice(AVOIDS),
    )


def changed(ledger: Ledger, dice: random.Random, times: int) -> None:
    for _ in range(times):
        number = dice.randrange(12)
        if dice.random() < 0.3:
            ledger.remove(f"uid-{number}")
        else:
            ledger.put(an_entry(dice, number))


def walked(ledger: Ledger, namespace: str, wanted: Mapping[str, str]) -> Counter[str]:
    found = (
        e
        for e in ledger.entries()
        if e.namespace == namespace and wanted.items() <= dict(e.labels).items()
    )
    return Counter(entry.cluster for entry in found)


def counted(ledger: Ledger, namespace: str, wanted: Mapping[str, str]) -> Counter[str]:
    total = Counter[str]()
    for group in ledger.neighbours.selected(namespace, wanted):
        total.update(ledger.neighbours.on(group))
    return total


@pytest.mark.parametrize("seed", range(60))
def test_the_counts_equal_a_scan_of_all_entries(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    ledger = Ledger()
    changed(ledger, dice, 20)
    fork = ledger.fork()
    changed(fork, dice, 10)
    second = fork.fork()
    changed(second, dice, 10)
    for each in (ledger, fork, second):
        for namespace in NAMESPACES:
            for wanted in WANTED:
                assert counted(each, namespace, wanted) == walked(
                    each, namespace, wanted
                )
        avoiding = {(e.namespace, e.avoids): None for e in each.entries() if e.avoids}
        found = {
            group
            for labels in LABELS
            for group in each.neighbours.avoiding(labels)
            if each.neighbours.on(group)
        }
        assert found == set(avoiding)
        assert each.neighbours.any_avoiding >= bool(avoiding)
    assert ledger.differences(rebuilt(ledger.entries())) == []
    for entry in list(ledger.entries()):
        ledger.remove(entry.uid)
    assert not ledger.neighbours.any_avoiding
    assert not [
        group
        for namespace in NAMESPACES
        for wanted in WANTED
        for group in ledger.neighbours.selected(namespace, wanted)
    ]
    assert ledger.neighbours.differences(Ledger().neighbours) == []


def test_an_audit_finds_a_wrong_count() -> None:
    ledger = Ledger()
    entry = LedgerEntry("uid", "ml", "d", "a", 0, "r", (), labels=(("app", "a"),))
    ledger.put(entry)
    ledger.neighbours.move(None, entry)
    assert ledger.differences(rebuilt(ledger.entries())) == [
        "replicas like ('ml', (('app', 'a'),)): {'a': 2} counted, {'a': 1} by recount"
    ]


TERMS = (
    AffinityTerm({"app": "a"}, "zone", weight=3),
    AffinityTerm({"tier": "x"}, weight=2),
    AffinityTerm({"app": "self"}, "zone", weight=1),
    AffinityTerm({"app": "a"}, "zone"),
    AffinityTerm({"tier": "x"}),
)

SPREAD = (SpreadConstraint("zone", when_unsatisfiable="ScheduleAnyway"),)


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The deployments whose entries are read."""
    read: list[tuple[str, str]] = []
    owned = Ledger.owned

    def noted(
        self: Ledger, namespace: str, deployment: str
    ) -> Mapping[str, LedgerEntry]:
        read.append((namespace, deployment))
        return owned(self, namespace, deployment)

    def refused(_: Ledger) -> Iterator[LedgerEntry]:
        raise AssertionError("all entries are walked")

    monkeypatch.setattr(Ledger, "owned", noted)
    monkeypatch.setattr(Ledger, "entries", refused)
    return read


def test_a_decision_with_affinity_reads_no_entries_of_other_deployments(
    walks: list[tuple[str, str]],
) -> None:
    world = fleet(
        *(cluster(f"c{i}", 8, labels={"zone": f"z{i % 2}"}) for i in range(4))
    )
    for i in range(8):
        other = deployment(name=f"other-{i}", labels={"app": "a"})
        put_replicas(
            world,
            other,
            f"c{i % 4}/{i}",
            labels=(("app", "a"),),
            avoids=(("", (), (("app", "z"),)),),
        )
    view = deployment(
        name="own",
        labels={"app": "self"},
        want=3,
        policy=PlacementPolicy(affinity=TERMS[:4], anti_affinity=TERMS[4:]),
    )
    walks.clear()
    assert len(decided(world, view).placements) == 3
    assert set(walks) == {("ml", "own")}


@pytest.mark.parametrize("seed", range(40))
def test_preferred_clusters_are_ordered_by_penalty(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    world = fleet(
        *(
            cluster(
                f"c{i}",
                8,
                labels={"zone": f"z{dice.randrange(3)}"} if dice.random() < 0.8 else {},
            )
            for i in range(6)
        )
    )
    for i in range(5):
        put_replicas(
            world,
            deployment(name=f"other-{i}"),
            f"c{dice.randrange(6)}/{i}",
            labels=dice.choice(LABELS),
        )
    affinity, anti_affinity = (
        tuple(dice.sample(TERMS[:3], 2)),
        tuple(dice.sample(TERMS[:3], 1)),
    )
    policy = PlacementPolicy(
        affinity=affinity,
        anti_affinity=anti_affinity,
        topology_spread=SPREAD[: dice.randrange(2)],
    )
    view = deployment(name="own", labels={"app": "self"}, policy=policy)
    overlay = FleetOverlay(world, NOW)
    everything = overlay.index.everything
    constraints = Constraints(overlay, view, everything)
    own = {f"c{dice.randrange(6)}": dice.randrange(3) for _ in range(2)}
    penalty = constraints.penalties(own)
    groups = [
        [info.name for info in overlay.index.each(group)]
        for group in constraints.by_preference(everything, own)
    ]
    expected: dict[int, list[str]] = {}
    for info in overlay.index.each(everything):
        expected.setdefault(penalty(info), []).append(info.name)
    assert groups == [expected[value] for value in sorted(expected)]
