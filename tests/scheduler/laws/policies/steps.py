"""Decide a world step by step, with the state before and after each request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from scheduler.decide import apply, decide, decide_and_explain
from scheduler.explain.cluster_report import ClusterDetail
from scheduler.fleet.fleet import Fleet
from scheduler.model.decision import Decision, Placement
from scheduler.model.inputs import DeploymentView, LedgerEntry, ScheduleRequest
from tests.scheduler.builders import NOW
from tests.scheduler.laws.policies.books import (
    Engines,
    Owner,
    State,
    nominee_of,
    owner_of,
)
from tests.scheduler.laws.policies.rules import owner
from tests.scheduler.laws.policies.search import Filler
from tests.scheduler.laws.policies.worlds import Dice, World, edited_later

# Reasons of evictions whose replica has a successor, apart from missing replicas.
SUCCEEDED = ("TemplateChanged", "PinMismatch", "NotAdmitted")


@dataclass
class Step:
    """One decision with its explanation, and the states `before` and `after` it.

    In both, an updated replica has its earlier engines as well until it is Ready.
    """

    view: DeploymentView
    decision: Decision
    before: State
    after: State
    clusters: Mapping[str, ClusterDetail]

    @property
    def me(self) -> Owner:
        return owner(self.view)

    @property
    def priority(self) -> int:
        return self.before.options.priority_of(self.view.policy.priority_class)

    @cached_property
    def filler(self) -> Filler:
        return Filler(self.after, self.view, self.priority)

    @cached_property
    def new(self) -> list[LedgerEntry]:
        """Return the replicas that this decision placed."""
        return [
            self.after.entries[p.uid]
            for p in self.decision.placements
            if p.action in ("Create", "Replace")
        ]

    @property
    def updated(self) -> list[LedgerEntry]:
        return [
            self.after.entries[p.uid]
            for p in self.decision.placements
            if p.action == "Update"
        ]

    @property
    def kept(self) -> list[Placement]:
        return [p for p in self.decision.placements if p.action in ("Keep", "Update")]

    @property
    def victims(self) -> list[LedgerEntry]:
        """Return the preempted replicas of other deployments, before their preemption."""
        return [self.before.entries[victim.uid] for victim in self.decision.victims]

    @property
    def is_held(self) -> bool:
        return self.view.cache.state in ("Unresolved", "Absent")

    @property
    def surges(self) -> bool:
        return self.view.policy.rollout.max_surge != 0

    @property
    def missing_before_fill(self) -> int:
        """Return the number of replicas to fill in after the successors were placed."""
        return self.view.replicas - len(self.kept) - self.succeeded

    @property
    def filled(self) -> int:
        return len(self.new) - self.succeeded

    @property
    def succeeded(self) -> int:
        return sum(e.reason in SUCCEEDED for e in self.decision.evictions)


@dataclass
class Outcome:
    """All steps of a world, its final fleet and deployments, and the first round as one
    batch.
    """

    world: World
    fleet: Fleet
    steps: list[Step]
    batch: list[Decision]
    later: list[ScheduleRequest]
    now: int


def run(world: World) -> Outcome:
    """Decide every deployment once, let some events happen, and decide every deployment
    again.
    """
    built = world.build()
    batch = decide(built, world.requests(), NOW)
    older: dict[str, tuple[Engines, ...]] = {}
    steps = list(
        _decided(built, world.requests(), NOW, older, explained=world.seed % 4 == 0)
    )
    if world.seed % 2:
        return Outcome(world, built, steps, batch, world.requests(), NOW)
    dice = Dice(world.seed)
    now = NOW + dice.choice((1, 1, 600)) * 1000
    pass_time(built, dice, now)
    _forget_updated(built, older)
    later = [
        replace(
            r,
            request_id=f"later-{r.request_id}",
            deployment=edited_later(dice, r.deployment),
        )
        for r in world.requests()
    ]
    steps += _decided(built, later, now, older, explained=False)
    return Outcome(world, built, steps, batch, later, now)


def _decided(
    built: Fleet,
    requests: list[ScheduleRequest],
    now: int,
    older: dict[str, tuple[Engines, ...]],
    *,
    explained: bool,
) -> Iterator[Step]:
    """Decide requests; `older` is kept up to date as in `State`."""
    for request in requests:
        before = replace(state_of(built, now), older=dict(older))
        # An explanation costs more than its decision, so only some steps have one.
        answer = decide_and_explain(built, [request], now, lambda _: explained)[0]
        decision = answer.decision
        apply(built, decision, request.deployment)
        for p in decision.placements:
            if p.action == "Update":
                was = before.entries[p.uid].engines
                older[p.uid] = (*older.get(p.uid, ()), was)
        yield Step(
            request.deployment,
            decision,
            before,
            replace(state_of(built, now), older=dict(older)),
            answer.clusters,
        )


def pass_time(built: Fleet, dice: Dice, now: int) -> None:
    """Let some replicas start, become Ready or go."""
    for entry in sorted(built.entries(), key=lambda entry: entry.uid):
        if entry.state == "Releasing" and dice.chance(0.5):
            built.release(entry.uid)
        elif (
            entry.state != "Releasing"
            and dice.chance(0.7)
            and all(built.replica(uid) is None for uid in awaited(built, entry))
        ):
            built.bind(entry.uid, now)
            ready = dice.chance(0.8)
            built.observe(entry.uid, ready=ready, serving=True)
            if ready:
                built.end_update(entry.uid)


def _forget_updated(built: Fleet, older: dict[str, tuple[Engines, ...]]) -> None:
    """Forget the earlier engines of replicas that are Ready or gone."""
    for uid in list(older):
        entry = built.replica(uid)
        if entry is None or entry.ready:
            del older[uid]


def awaited(built: Fleet, entry: LedgerEntry) -> list[str]:
    """Return the replicas whose nodes a reserved one was given."""
    if entry.state != "Reserved":
        return []
    return [
        e.uid
        for e in built.on_cluster(entry.cluster).values()
        if e.state == "Releasing" and nominee_of(e) == owner_of(entry)
    ]


def state_of(built: Fleet, now: int) -> State:
    clusters = {name: built.clusters[name].view for name in sorted(built.clusters)}
    return State(
        clusters,
        {entry.uid: entry for entry in built.entries()},
        built.options,
        dict(built.preempted_at),
        now,
    )
