"""The scheduling cycle of one deployment, from retaining replicas to filling.

The steps change only the overlay of the batch. `decide` builds the decision from the
state of the cycle.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from scheduler.cel.limits import REQUEST_WORK_MAX
from scheduler.fleet.overlay import FleetOverlay
from scheduler.fleet.waits import divide_waits
from scheduler.hardware.device_matching import selector_problems, work_problem
from scheduler.hardware.template import (
    CompiledTemplate,
    charges,
    compile_template,
    placing_units,
)
from scheduler.model import reasons
from scheduler.model.decision import Eviction, Placement, RetainedNote
from scheduler.model.inputs import DeploymentView, LedgerEntry, ScheduleRequest
from scheduler.placement.filters import hold_reason
from scheduler.placement.in_place import growth_blocked, update_in_place
from scheduler.placement.limits.quota import QuotaGate
from scheduler.placement.placer import ReplicaPlacer
from scheduler.placement.preempt import Preemption
from scheduler.placement.retain import (
    RetainedReplica,
    RetainResult,
    lost_capacity,
    own_entries,
    retain,
)
from scheduler.placement.rollout import (
    RolloutBudget,
    budget_of,
    changeable,
    drained_replicas,
    is_outdated,
    next_drain_deadline,
    partitioned_replicas,
    unavailable_limit,
)
from scheduler.placement.scale_down import surplus_replicas
from scheduler.placement.victim_search import UNFINISHED_MAX


@dataclass(slots=True)
class SchedulingCycle:
    """The state of one decision in progress.

    `invalid` names the invalid selectors, and `held` is the reason why no new replica
    may be placed. Both are usually "".
    """

    overlay: FleetOverlay
    request: ScheduleRequest
    priority: int
    compiled: CompiledTemplate | None = None
    invalid: str = ""
    held: str = ""
    retained: RetainResult = field(default_factory=RetainResult)
    kept: list[RetainedReplica] = field(default_factory=list)
    updates: dict[str, LedgerEntry] = field(default_factory=dict)
    placed: list[Placement] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    victims: list[Eviction] = field(default_factory=list)
    notes: list[RetainedNote] = field(default_factory=list)
    placer: ReplicaPlacer | None = None
    quota: QuotaGate | None = None
    evicted_entries: list[LedgerEntry] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    more: bool = False
    drain_deadline: int = 0
    preemption: str = ""
    is_cut_short: bool = False
    unfinished: int = 0
    search_ended: bool = False

    @property
    def deployment(self) -> DeploymentView:
        return self.request.deployment

    def run(self) -> None:
        """Run all steps in order."""
        self.compile()
        self.retain()
        self.drain()
        surge = self.scale_down()
        if self.compiled is None:
            return
        budget = budget_of(self.overlay, self.deployment, self.kept)
        quota = self.quota = QuotaGate(self.overlay, self.deployment, self.priority)
        if self.held:
            if not surge:
                self.update(budget, quota)
            return
        self.placer = ReplicaPlacer(
            self.overlay,
            self.request,
            self.compiled_for_placing(self.compiled),
            self._occupying_entries(),
            quota,
        )
        for entry in self.evicted_entries:
            self.placer.mark_vacated(entry)
        if surge:
            self.surge(budget)
        else:
            self.replace_mismatched(budget)
            self.update(budget, quota)
        self.fill()
        self.placed = divide_waits(
            self.overlay.ledger,
            (self.deployment.namespace, self.deployment.name),
            self.placed,
            (victim.uid for victim in self.victims),
        )

    def compile(self) -> None:
        """Compile the selectors.

        If they are invalid, nothing new is placed and no template is rolled out.
        """
        rules = self.overlay.rules.matching
        engines = self.deployment.engines
        self.invalid = "; ".join(selector_problems(engines, rules))
        if not self.invalid:
            compiled = compile_template(engines, rules)
            sets = self.overlay.index.offered_sets()
            work = compiled.work(sets)
            self.overlay.charge_work(compiled, work)
            if work > REQUEST_WORK_MAX:
                self.invalid = work_problem(engines, rules, len(sets))
            else:
                self.compiled = compiled
        self.held = hold_reason(self.deployment)
        gate = self.request.fill
        if not self.held and not gate.is_open:
            self.held = gate.reason or "placement is held"

    def compiled_for_placing(self, compiled: CompiledTemplate) -> CompiledTemplate:
        """Return the template for new replicas.

        Engines that may span pools are placed member by member.
        """
        engines = self.deployment.engines
        if not self.overlay.rules.span_pools or not any(
            engine.span_pools for engine in engines
        ):
            return compiled
        return compile_template(placing_units(engines), compiled.rules)

    def retain(self) -> None:
        """Determine which replicas are retained."""
        entries = own_entries(
            self.overlay,
            self.deployment,
            {known.uid: known for known in self.request.kept},
        )
        self.retained = retain(
            self.overlay, self.deployment, self.compiled, entries, held=bool(self.held)
        )
        self.kept = self.retained.kept
        self.notes = self.retained.notes
        for entry in self.retained.terminating:
            known = self.overlay.ledger.get(entry.uid)
            if known is not None and known.state != reasons.RELEASING:
                self._evict(
                    entry,
                    reasons.TERMINATING,
                    "its workflow is shutting down",
                    vacates=False,
                )
        for evicted in self.retained.evicted:
            self._evict(evicted.entry, evicted.reason, evicted.detail)
        for kept in [k for k in self.kept if k.entry.state == reasons.RELEASING]:
            # The ledger does not record it as releasing, so no other replica of its
            # deployment may reuse its nodes.
            kept.entry = replace(kept.entry, state=reasons.BOUND)
            self.overlay.ledger.put(kept.entry)
        if self.overlay.rules.evict_before_placing:
            for kept in [k for k in self.kept if k.replace_reason]:
                self._evict_kept(kept, kept.replace_reason, kept.detail)
        self.refuse_pools()
        for kept in self.kept:
            self.notes += lost_capacity(self.overlay, kept.entry)

    def refuse_pools(self) -> None:
        """Refuse, for a while, pools where a replica waited too long for admission."""
        for kept in self.kept:
            if kept.replace_reason == reasons.NOT_ADMITTED:
                entry = kept.entry
                for pool in charges(entry.charged):
                    self.overlay.refused[
                        entry.namespace, entry.deployment, entry.cluster, pool
                    ] = self.overlay.now
                    self.refused.append((entry.cluster, pool))

    def drain(self) -> None:
        """Evict replicas from drained clusters within the drain budget."""
        for kept in drained_replicas(self.deployment, self.kept, self.overlay.now):
            self._evict_kept(kept, reasons.DRAINED, kept.drain_reason)
        self.more = any(kept.drain_reason for kept in self.kept)
        self.drain_deadline = next_drain_deadline(self.deployment, self.kept)

    def scale_down(self) -> int:
        """Evict surplus replicas.

        Return the surge that is still allowed while a rollout replaces replicas.
        """
        surplus = len(self.kept) - self.deployment.replicas
        surge = 0
        old = self._old_replicas()
        if old:
            surge = budget_of(self.overlay, self.deployment, self.kept).surge
            # Only replicas that already have the current template may be surplus.
            surplus -= min(surge, len(self.kept) - old)
        if surplus <= 0:
            return surge
        scaled_down = reasons.SCALED_DOWN, f"{self.deployment.replicas} replicas wanted"
        partitioned = partitioned_replicas(self.deployment, self.kept)
        mismatched = [
            k for k in self.kept if k.replace_reason and k.entry.uid not in partitioned
        ]
        for kept in surplus_replicas(
            self.overlay, self.deployment, mismatched, partitioned, surplus
        ):
            if self.held:
                self._evict_kept(kept, *scaled_down)
            else:
                self._evict_kept(kept, kept.replace_reason, kept.detail)
            surplus -= 1
        for kept in surplus_replicas(
            self.overlay, self.deployment, self.kept, partitioned, surplus
        ):
            self._evict_kept(kept, *scaled_down)
        if surge and not self._old_replicas():
            # No old replica is left that the surge replicas could replace, and no later
            # step would remove them.
            for kept in surplus_replicas(
                self.overlay,
                self.deployment,
                self.kept,
                partitioned,
                len(self.kept) - self.deployment.replicas,
            ):
                self._evict_kept(kept, *scaled_down)
        return surge

    def _old_replicas(self) -> int:
        """Count the replicas that the rollout still has to change."""
        return sum(
            is_outdated(self.deployment, k) or bool(k.replace_reason)
            for k in changeable(self.deployment, self.kept)
        )

    def replace_mismatched(self, budget: RolloutBudget) -> None:
        """Replace replicas that no longer match the deployment.

        A replica is kept if no other place exists.
        """
        for kept in changeable(self.deployment, self.kept):
            if not kept.replace_reason:
                continue
            if kept.replace_reason == reasons.NOT_ADMITTED:
                # The replica serves no traffic, so moving it makes nothing unavailable.
                self._replace(kept)
            elif budget.left is not None and budget.left <= 0:
                self.more = True
            elif self._replace(kept):
                budget.take()

    def _replace(self, kept: RetainedReplica) -> bool:
        entry = kept.entry
        before = self.overlay.ledger.get(entry.uid)
        self.overlay.ledger.put(entry.as_releasing(self.overlay.now))
        self._placer.vacate(entry)
        placement = self._placer.place()
        if placement is None:
            self._placer.restore(entry)
            if before is not None:
                self.overlay.ledger.put(before)
            self.notes.append(
                RetainedNote(reasons.REPLACEMENT_BLOCKED, entry.name, kept.detail)
            )
            return False
        self.placed.append(placement)
        self.kept.remove(kept)
        self.evictions.append(_eviction(entry, kept.replace_reason, kept.detail))
        return True

    def update(self, budget: RolloutBudget, quota: QuotaGate) -> None:
        """Update replicas in place, growing only into free nodes."""
        for kept in changeable(self.deployment, self.kept):
            if (
                kept.replace_reason
                or kept.drain_reason
                or kept.target is None
                or not is_outdated(self.deployment, kept)
            ):
                continue
            blocked = growth_blocked(
                self.overlay, self.deployment, kept.entry, kept.target, quota
            )
            if blocked:
                self.notes.append(
                    RetainedNote(reasons.RESIZE_BLOCKED, kept.entry.name, blocked)
                )
            elif not budget.take():
                self.more = True
            else:
                updated = update_in_place(
                    self.overlay, self.deployment, kept.entry, kept.target
                )
                self.updates[updated.uid] = updated
                if self.placer:
                    # If devices are counted, pods of another size may leave more room
                    # than before.
                    self.placer.mark_open(updated.cluster)

    def surge(self, budget: RolloutBudget) -> None:
        """Place replicas with the current template in addition to the old ones.

        Old replicas are evicted as the new ones become Ready.
        """
        old = [
            k
            for k in changeable(self.deployment, self.kept)
            if (is_outdated(self.deployment, k) or k.replace_reason)
            and not k.drain_reason
        ]
        self.more = self.more or bool(old)
        excess = len(self.kept) + len(self.placed) - self.deployment.replicas
        for _ in range(min(budget.surge - excess, len(old) - max(0, excess))):
            placement = self._placer.place()
            if placement is None:
                self.notes += [
                    RetainedNote(
                        reasons.REPLACEMENT_BLOCKED,
                        k.entry.name,
                        "no free capacity for its successor",
                    )
                    for k in old
                ]
                break
            self.placed.append(placement)
        floor = self.deployment.replicas - unavailable_limit(
            self.deployment, self.overlay.options
        )
        # An old replica that serves is not Ready if its cluster does not answer, or if
        # some of its copies do not work.
        old_serving = {k.entry.uid for k in old if k.entry.serving}
        available = {
            k.entry.uid
            for k in self.kept
            if k.entry.ready or k.entry.uid in old_serving
        }
        for kept in old:
            if len(self.kept) + len(self.placed) <= self.deployment.replicas or (
                kept.entry.uid in available and len(available) - 1 < floor
            ):
                return
            available.discard(kept.entry.uid)
            self._evict_kept(
                kept,
                reasons.ROLLED_OUT,
                "replaced by a replica with the current template",
            )

    def fill(self) -> None:
        """Place the missing replicas, a gang together or not at all.

        Placement stops at the first replica or gang that fits on no cluster.
        """
        size = max(1, self.deployment.policy.gang_replicas)
        missing = self.deployment.replicas - len(self.kept) - len(self.placed)
        while missing > 0 and self._place_gang(min(size, missing)):
            missing = max(0, missing - size)
        policy = self.deployment.policy
        asked = policy.preemption != "Never" or (
            policy.priority_class and self.priority > 0
        )
        if missing > 0 and asked and self.overlay.rules.preempt:
            self.preempt(size, missing)

    def _place_gang(self, size: int) -> bool:
        """Place `size` replicas together, or none of them."""
        done: list[Placement] = []
        for _ in range(size):
            placement = self._placer.place()
            if placement is None:
                for made in reversed(done):
                    self._placer.undo(made)
                return False
            done.append(placement)
        self.placed += done
        return True

    def preempt(self, size: int, missing: int) -> None:
        """Preempt replicas of lower priority for the missing replicas, gang by gang."""
        policy = self.deployment.policy
        if policy.preemption != "LowerPriority":
            self.preemption = (
                f"preemption is off (preemptionPolicy {policy.preemption})"
            )
            return
        preemption = Preemption(self._placer, missing)
        while missing > 0:
            done = preemption.place(min(size, missing), self.placed)
            if not done:
                self.preemption = preemption.refusal
                break
            missing -= done
        preemption.finish()
        self.overlay.work += preemption.work
        self.victims = preemption.evictions
        self.is_cut_short = missing > 0 and preemption.is_cut_short
        if self.is_cut_short:
            # Some replicas were preempted, so the next decision has fewer replicas to
            # search.
            self.unfinished = (
                preemption.unfinished if self.victims else preemption.unfinished_next
            )
            self.search_ended = (
                not self.victims and preemption.unfinished == UNFINISHED_MAX
            )
            self.more = self.more or bool(self.victims) or self.unfinished > 0

    @property
    def _placer(self) -> ReplicaPlacer:
        if self.placer is None:
            raise RuntimeError("replicas are placed before the placer exists")
        return self.placer

    def _occupying_entries(self) -> list[LedgerEntry]:
        """Return the entries that hold an index or nodes.

        These are retained replicas, duplicates, and replicas that were releasing before
        this cycle.
        """
        gone = {entry.uid for entry in self.evicted_entries}
        terminating = [
            e.as_releasing(e.since)
            for e in self.retained.terminating
            if e.uid not in gone
        ]
        return [*(k.entry for k in self.kept), *terminating, *self.retained.duplicates]

    def _evict_kept(self, kept: RetainedReplica, reason: str, detail: str) -> None:
        self.kept.remove(kept)
        self._evict(kept.entry, reason, detail)

    def _evict(
        self, entry: LedgerEntry, reason: str, detail: str, *, vacates: bool = True
    ) -> None:
        self.overlay.ledger.put(entry.as_releasing(self.overlay.now))
        self.evictions.append(_eviction(entry, reason, detail))
        if vacates:
            self.evicted_entries.append(entry)


def _eviction(entry: LedgerEntry, reason: str, detail: str) -> Eviction:
    return Eviction(
        entry.uid,
        entry.name,
        entry.cluster,
        reason,
        detail,
        entry.namespace,
        entry.deployment,
    )
