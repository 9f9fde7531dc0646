"""Settings of a decision, for one deployment and for the whole fleet.

With all defaults, the scheduler counts whole nodes and spreads replicas by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Units in which capacity is counted (`accounting`, `class_accounting`).
WHOLE_NODES, DEVICE_SAFE, DEVICE_PACKED = "node", "device-safe", "device-packed"
# Whether waiting deployments reserve capacity (`queue_order`).
STRICT_ORDER, BEST_EFFORT = "StrictOrder", "BestEffort"
# Decisions equal those of the reference implementation (`compat`, see `rules`).
REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class RolloutPolicy:
    """How a template change is rolled out over the replicas.

    Counts are whole numbers or percentages such as `25%`. Without `max_unavailable`,
    the fleet's `rollout_max_unavailable` applies.
    """

    type: str = "Rolling"
    max_unavailable: int | str | None = None
    max_surge: int | str = 0
    partition: int = 0
    paused: bool = False


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """How many replicas a drain may evict before their successors are Ready.

    The deadline is in seconds; 0 means no deadline.
    """

    max_unavailable: int | str = "100%"
    deadline_seconds: int = 0


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """Keep a deployment's replicas evenly spread over the values of a cluster label."""

    topology_key: str
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    min_domains: int = 0


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Affinity or anti-affinity to replicas of deployments with these labels.

    A weight above 0 makes it a preference. Without a topology key the domain is the
    cluster. Without namespaces the term applies to the deployment's own namespace.
    """

    match_labels: Mapping[str, str]
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """The part of a deployment that controls its placement."""

    rollout: RolloutPolicy = field(default_factory=RolloutPolicy)
    drain: DrainPolicy = field(default_factory=DrainPolicy)
    profile: str = ""
    priority_class: str = ""
    preemption: str = "Never"
    min_available: int = 0
    topology_spread: tuple[SpreadConstraint, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    network_domain: str = "Ignore"
    gang_replicas: int = 1
    cache_required: str = ""


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit for one namespace over the pools that match; a negative limit means none.

    Attributes:
        class_name: InferenceClass of the pools; empty for any.
        match_labels: labels of the clusters.
        device_selector: CEL over a device.
        priority_floor: requests of a lower priority may not use these pools at all.

    """

    namespace: str
    max_nodes: int = -1
    max_devices: int = -1
    match_labels: Mapping[str, str] = field(default_factory=dict)
    class_name: str = ""
    device_selector: str = ""
    priority_floor: int | None = None


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Fleet-wide policy.

    Attributes:
        profile: name of the scoring profile.
        accounting: node, device-safe or device-packed.
        compat: "" or "reference" (for differential tests).
        max_cost: limit of CEL cost units per evaluation.
        observed_limit_seconds: an older observation is ignored and reported as stale.
        queue_order: BestEffort, or StrictOrder: waiting deployments reserve their
            candidate pools against later requests.
        hold_for_seconds: the longest time of such a reservation.
        weights: weights of the scoring functions in the profile `weighted`, by name.
        class_accounting: accounting by class name, which overrides `accounting`.
        admission_timeout_seconds: a replica whose pods wait longer for admission may be
            replaced elsewhere.
        refusal_seconds: how long its deployment then avoids that pool.

    """

    profile: str = "default"
    accounting: str = WHOLE_NODES
    compat: str = ""
    lenient_calls: bool = False
    max_cost: int = 20_000
    reservation_ttl_seconds: int = 600
    preemption_cooldown_seconds: int = 600
    observed_limit_seconds: int = 600
    packed_enforced: bool = False
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    quotas: tuple[Quota, ...] = ()
    rollout_max_unavailable: int | str = 1
    queue_order: str = BEST_EFFORT
    hold_for_seconds: int = 300
    weights: Mapping[str, int] = field(default_factory=dict)
    class_accounting: Mapping[str, str] = field(default_factory=dict)
    admission_timeout_seconds: int = 900
    refusal_seconds: int = 3600

    def priority_of(self, priority_class: str) -> int:
        """Return the priority of a class; an unknown or empty class has priority 0."""
        return self.priority_classes.get(priority_class, 0) if priority_class else 0
