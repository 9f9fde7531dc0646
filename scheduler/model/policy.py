"""Settings of a decision: those of one deployment and those of the whole fleet.

With everything at its default, decisions are those of whole-node accounting, spread by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# How capacity is counted (`accounting`, `class_accounting`).
WHOLE_NODES, DEVICE_SAFE, DEVICE_PACKED = "node", "device-safe", "device-packed"
# Whether deployments that wait for capacity reserve it (`queue_order`).
STRICT_ORDER, BEST_EFFORT = "StrictOrder", "BestEffort"
# Decisions equal those of the reference implementation (`compat`); `rules` says what that means.
REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Rollout:
    """How a template change is rolled out over the replicas; counts are whole numbers or percentages such as `25%`.

    Without `max_unavailable` the fleet's `rollout_max_unavailable` holds.
    """

    type: str = "Rolling"
    max_unavailable: int | str | None = None
    max_surge: int | str = 0
    partition: int = 0
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Drain:
    """How many replicas may be evicted from a drained cluster before their successors are Ready; the deadline is in seconds, 0 = none."""

    max_unavailable: int | str = "100%"
    deadline_seconds: int = 0


@dataclass(frozen=True, slots=True)
class TopologySpread:
    """Keep the replicas of a deployment even over the values of a cluster label."""

    topology_key: str
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    min_domains: int = 0


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Stay with, or away from, replicas of deployments with these labels in a domain; a weight above 0 makes it a preference.

    Without a topology key the domain is the cluster. Without namespaces it is the deployment's own namespace.
    """

    match_labels: Mapping[str, str]
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """The part of a deployment that steers its placement."""

    rollout: Rollout = field(default_factory=Rollout)
    drain: Drain = field(default_factory=Drain)
    profile: str = ""
    priority_class: str = ""
    preemption: str = "Never"
    min_available: int = 0
    topology_spread: tuple[TopologySpread, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    network_domain: str = "Ignore"
    gang_replicas: int = 1
    cache_required: str = ""


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of one namespace over the pools that match; a negative limit means none.

    `class_name` is empty for any class, `match_labels` are labels of clusters, `device_selector` is CEL over a device. Requests of a
    priority below the floor may not use these pools at all.
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
        compat: "" or "reference" (for differential runs).
        max_cost: limit of CEL cost units per evaluation.
        observed_limit_seconds: a snapshot older than this is ignored and flagged.
        queue_order: BestEffort, or StrictOrder: deployments that wait for capacity reserve their candidate pools against those behind them.
        hold_for_seconds: for how long at most.
        weights: of the scoring functions in the profile `weighted`, by name.
        class_accounting: accounting of the pools of some classes instead of `accounting`, by class name.
        admission_timeout_seconds: a replica whose pods are not admitted for longer may be replaced elsewhere.
        refusal_seconds: for how long that pool is then not used for its deployment.

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
        """Give the priority of a class; an unknown class, or none, has 0."""
        return self.priority_classes.get(priority_class, 0) if priority_class else 0
