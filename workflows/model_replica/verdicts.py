"""What a ModelReplica makes of what it knows: conditions, the serving latch, its address and its phase.

Nothing is done here and nobody is told; the same state gives the same verdicts.
"""

from abc import abstractmethod

from api_types.errors import ClusterUnreachable
from workflows.entity.conditions import FALSE, TRUE, is_true
from workflows.entity.entity import Entity
from workflows.model_replica.readings import drift, endpoint_url, holds_floor, model_problem, overdue, routing_problem
from workflows.model_replica.state import ReplicaCarried


class ReplicaJudging(Entity[ReplicaCarried]):
    """The part of a replica that says how it stands."""

    @abstractmethod
    def waits_for_cache(self) -> str:
        """Say which cache keeps the engines from starting."""

    def judge(self) -> None:
        """Write conditions, the serving latch and the phase from what is known."""
        applied, seen = self.state.applied, self.state.observed
        current = applied is not None and self.state.applied_generation == self.state.generation
        self.condition("ModelAccepted", *self._accepted_verdict())
        accepted = is_true(self.state.conditions, "ModelAccepted")
        if applied is None or seen is None or not (accepted or self.state.was_ready):
            self.condition("ModelReady", FALSE, "WaitingForModel", "")
            self.condition("RoutingReady", FALSE, "Configuring", "")
            self.condition("Ready", FALSE, "Creating", self._accepted_verdict()[2])
            return
        self.warn_of_delay(overdue(applied, seen))
        model, routing = model_problem(applied, seen), routing_problem(applied, seen)
        self.condition("ModelReady", *((FALSE, "ModelStarting", model) if model else (TRUE, "Serving", "")))
        self.condition("RoutingReady", *((FALSE, "Configuring", routing) if routing else (TRUE, "RouteConfigured", "")))
        ready = accepted and current and not model and not routing and not self.out_of_reach()
        if ready:
            self.state.serving = self.state.served = self.state.was_ready = True
        elif self.state.serving and (self.out_of_reach() or not holds_floor(applied, seen, (self.state.spec or {})["engines"])):
            self.state.serving = False
            self.event("Warning", "ServingLost", model or routing or "the cluster is out of reach")
        self.condition("Serving", *((TRUE, "Serving", "") if self.state.serving else (FALSE, "NotServing", model or routing)))
        reason = "Unavailable" if self.state.was_ready else "Creating"
        self.condition("Ready", *((TRUE, "Available", "") if ready else (FALSE, reason, model or routing)))
        self.state.observed_generation = self.state.applied_generation

    def warn_of_delay(self, engines: list[str]) -> None:
        """Tell once that engines take longer than expected; large models may, so it judges nothing."""
        for name in [name for name in engines if name not in self.state.overdue]:
            self.event("Warning", "ProgressDeadlineExceeded", f"engine {name} has made no progress for long; it is still waited for")
        self.state.overdue = engines

    def out_of_reach(self) -> bool:
        """Tell whether the cluster has been silent for so long that its endpoints must go."""
        return bool(self.state.cluster and self.state.cluster.unreachable_for_seconds)

    def _accepted_verdict(self) -> tuple[str, str, str]:
        known, (kind, message) = self.state.cluster, self.state.failure
        if kind:
            reason = self.state.failure_reason
            return FALSE, reason, f"{kind}: {message}" if reason == "ClusterUnreachable" and kind != reason else message
        if known is None or known.connection is None:
            return FALSE, "WaitingForCluster", f"InferenceCluster {self.state.birth.cluster} is not connected"
        if self.state.applied is None or self.state.applied_generation != self.state.generation:
            return FALSE, "Deploying", f"generation {self.state.generation} is not applied yet"
        if self.state.observed is None:
            return FALSE, "Deploying", "waiting for the cluster's observer"
        missing = drift(self.state.applied, self.state.observed)
        if missing:
            return FALSE, "Deploying", f"not seen as applied yet: {', '.join(missing)}"
        if self.state.applied.held:
            return FALSE, self.state.applied.held, self.waits_for_cache()
        return TRUE, "Accepted", ""

    def endpoint(self) -> str:
        """Give the address at which this replica answers; empty while it must not be used."""
        facts = self.state.cluster.facts if self.state.cluster else None
        if not (self.state.serving and facts and facts.gateway_address) or self.state.deleted:
            return ""
        return endpoint_url(facts.gateway_address, self.namespace, self.name)

    def detailed_phase(self) -> str:
        """Give the replica's own phase, finer than those that all kinds share."""
        if self.state.deleted:
            return "Unreachable" if self.state.teardown.trouble[0] == ClusterUnreachable.__name__ else "Terminating"
        if self.state.failure[0] in ("InvalidInput", "NameConflict") and not self.state.was_ready:
            return "Failed"
        if self.out_of_reach():
            return "Unreachable"
        if is_true(self.state.conditions, "Ready"):
            return "Ready"
        if self.state.applied is None:
            return "Applying" if self.state.attempted else "Pending"
        if self.state.was_ready:
            return "Updating" if self.state.prune or self.state.applied_generation != self.state.generation else "Degraded"
        return "Starting"

    def phase(self) -> str:
        """Map the finer phase onto the shared ones."""
        if self.state.deleted:
            return "Deleting"
        shared = {"Ready": "Ready", "Failed": "Failed", "Pending": "Pending"}
        degraded = ("Degraded", "Unreachable")
        phase = self.detailed_phase()
        return shared.get(phase, "Degraded" if phase in degraded else "Progressing")
