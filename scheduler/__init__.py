"""Choose clusters and pools for replicas.

Nothing here waits, reads a clock, or calls out, and nothing imports Temporal or pydantic on the path of a decision: equal input gives
equal bytes, on any worker, in any year. `fleet` is what is known, `decide` is what follows from it, `explain` says why, `plan` asks
what would be.
"""

from scheduler.cel import check_selector
from scheduler.decide import apply, build_decision, decide, ordered, priority_of
from scheduler.explain.cluster_report import cluster_details
from scheduler.explain.pool_report import pool_report
from scheduler.fleet import registry, snapshot
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.ledger_rows import pack_rows, unpack_rows
from scheduler.fleet.manifests import cluster_view, deployment_view
from scheduler.fleet.overlay import FleetOverlay
from scheduler.fleet.queue_reservations import next_expiry
from scheduler.fleet.snapshot import SnapshotReader
from scheduler.kubernetes.quantity import parse_quantity
from scheduler.kubernetes.semver import parse_version
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model import reasons
from scheduler.model.identity import Owner
from scheduler.model.inputs import ClusterView, Decision, DeploymentView, Eviction, KeptReplica, Placement, ReplicaView, ScheduleRequest
from scheduler.model.policy import SchedulerOptions
from scheduler.model.reasons import BOUND, KEEP, RELEASING, RESERVED
from scheduler.model.version import SCHEDULER_VERSION
from scheduler.model.wire import from_wire, to_wire
from scheduler.placement.cycle import SchedulingCycle
from scheduler.placement.policy_document import InvalidPolicyError, read_policy, write_policy
from scheduler.placement.queue_limits import evicted_workloads, next_timeouts
from scheduler.planning.offline import Documents, offline_cluster, offline_deployment, offline_fleet, sort_documents
from scheduler.planning.plan import decision_tree, end_state, engine_trees, plan_offline
from scheduler.planning.questions import Offer, can_drain, cluster_of_class, headroom, offers
from scheduler.planning.whatif import MAINTENANCE, Changes, DeploymentDiff, changed, copy_of, plan, settle

__all__ = [
    "BOUND",
    "KEEP",
    "MAINTENANCE",
    "RELEASING",
    "RESERVED",
    "SCHEDULER_VERSION",
    "Changes",
    "ClusterView",
    "Decision",
    "DeploymentDiff",
    "DeploymentView",
    "Documents",
    "Eviction",
    "Fleet",
    "FleetOverlay",
    "InvalidPolicyError",
    "KeptReplica",
    "Offer",
    "Owner",
    "Placement",
    "ReplicaView",
    "ScheduleRequest",
    "SchedulerOptions",
    "SchedulingCycle",
    "SnapshotReader",
    "apply",
    "build_decision",
    "can_drain",
    "changed",
    "check_selector",
    "cluster_details",
    "cluster_of_class",
    "cluster_view",
    "copy_of",
    "decide",
    "decision_tree",
    "deployment_view",
    "end_state",
    "engine_trees",
    "evicted_workloads",
    "from_wire",
    "headroom",
    "next_expiry",
    "next_timeouts",
    "offers",
    "offline_cluster",
    "offline_deployment",
    "offline_fleet",
    "ordered",
    "pack_rows",
    "parse_quantity",
    "parse_version",
    "plan",
    "plan_offline",
    "pool_report",
    "priority_of",
    "read_policy",
    "reasons",
    "registry",
    "settle",
    "snapshot",
    "sort_documents",
    "to_wire",
    "unpack_rows",
    "untolerated",
    "write_policy",
]
