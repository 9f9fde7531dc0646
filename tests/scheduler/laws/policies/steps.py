"""A world decided step by step: each request with the state before and after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from scheduler.decide import apply, decide, decide_and_explain
from scheduler.explain.cluster_report import ClusterDetail
from scheduler.fleet.fleet import Fleet
from scheduler.model.decision import Decision, Placement
from scheduler.model.inputs import DeploymentView, LedgerEntry
from tests.scheduler.builders import NOW
from tests.scheduler.laws.policies.books import Owner, State
from tests.scheduler.laws.policies.rules import owner
from tests.scheduler.laws.policies.search import Filler
from tests.scheduler.laws.policies.worlds import World

# Evictions after which their deployment has a successor placed for each, apart from what is missing.
SUCCEEDED = ("TemplateChanged", "PinMismatch", "NotAdmitted")


@dataclass
class Step:
    """One decision with its explanation, `before` it and `after` it was applied; there updates hold the larger, as the decision sees it."""

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
        """The replicas that this decision placed."""
        return [self.after.entries[p.uid] for p in self.decision.placements if p.action in ("Create", "Replace")]

    @property
    def updated(self) -> list[LedgerEntry]:
        return [self.after.entries[p.uid] for p in self.decision.placements if p.action == "Update"]

    @property
    def kept(self) -> list[Placement]:
        return [p for p in self.decision.placements if p.action in ("Keep", "Update")]

    @property
    def victims(self) -> list[LedgerEntry]:
        """The replicas of others that were preempted, as they were."""
        return [self.before.entries[victim.uid] for victim in self.decision.victims]

    @property
    def is_held(self) -> bool:
        return self.view.cache.state in ("Unresolved", "Absent")

    @property
    def surges(self) -> bool:
        return self.view.policy.rollout.max_surge != 0

    @property
    def missing_before_fill(self) -> int:
        """How many replicas were to be filled in, after those that succeed others were placed."""
        return self.view.replicas - len(self.kept) - self.succeeded

    @property
    def filled(self) -> int:
        return len(self.new) - self.succeeded

    @property
    def succeeded(self) -> int:
        return sum(e.reason in SUCCEEDED for e in self.decision.evictions)


@dataclass
class Outcome:
    """All steps of a world, the fleet in the end, and the same requests decided as one batch."""

    world: World
    fleet: Fleet
    steps: list[Step]
    batch: list[Decision]


def run(world: World) -> Outcome:
    built = world.build()
    batch = decide(built, world.requests(), NOW)
    steps = []
    for request in world.requests():
        before = state_of(built)
        # An explanation costs more than its decision; where nothing is missing some are enough.
        explained = decide_and_explain(built, [request], NOW, lambda d: d.shortfall > 0 or world.seed % 4 == 0)[0]
        decision = explained.decision
        apply(built, decision, request.deployment)
        after = state_of(built)
        updated = {p.uid: before.entries[p.uid].engines for p in decision.placements if p.action == "Update"}
        steps.append(Step(request.deployment, decision, before, replace(after, larger=updated), explained.clusters))
    return Outcome(world, built, steps, batch)


def state_of(built: Fleet) -> State:
    clusters = {name: built.clusters[name].view for name in sorted(built.clusters)}
    return State(clusters, {entry.uid: entry for entry in built.entries()}, built.options, dict(built.preempted_at), NOW)


def pools_of(entry: LedgerEntry) -> Iterator[tuple[str, str]]:
    """Give the pools that an entry uses, once each."""
    seen = Counter((entry.cluster, member.pool) for engine in entry.engines for member in engine.members if member.requests)
    yield from seen
