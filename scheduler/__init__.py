"""Choose clusters and pools for replicas.

Nothing here waits or does I/O, and the code of a decision imports neither Temporal nor
pydantic. Equal input produces equal bytes on any worker at any time. The only clock is
the time limit of a selector (`cel/limits.py`). A selector that reaches the limit does
not match.

Packages, each of which imports only those below it:

    planning     plans over manifests or a copy of the live fleet, and questions such
                 as headroom
    decide       one scheduling cycle for the live scheduler, plans and explanations
    explain      reasons for a decision: conditions, reasons per cluster and pool
    placement    steps of the scheduling cycle: retain, filter, score, place, preempt
    fleet        clusters and the ledger of replicas, and their packed forms
    hardware     which devices of a pool satisfy which requests
    cel          selectors
    kubernetes   versions, tolerations
    model        plain data, and `reasons`, the constants of states and reasons

Other packages import only from this module.
"""

from scheduler.cel import check_selector, selector_cost
from scheduler.decide import (
    ExplainedDecision,
    apply,
    decide,
    decide_and_explain,
    decide_some,
)
from scheduler.explain.capacity_use import (
    NamespaceCapacityUse,
    PoolCapacityUse,
    QuotaUse,
    namespace_use,
    pool_use,
    quota_use,
)
from scheduler.explain.conditions import priority_class_problem
from scheduler.explain.pool_report import pool_report
from scheduler.fleet.combined_cache import combined_cache
from scheduler.fleet.expiries import expiries, next_expiry
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.manifests import cluster_view, deployment_view, template_digest
from scheduler.fleet.snapshots import snapshot
from scheduler.fleet.snapshots.decision_state import (
    decision_state,
    restore_decision_state,
)
from scheduler.fleet.snapshots.inputs_digest import InputsDigest
from scheduler.fleet.snapshots.ledger_rows import pack_rows, unpack_rows
from scheduler.fleet.snapshots.snapshot import SnapshotReader
from scheduler.kubernetes.semver import parse_version
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model import reasons
from scheduler.model.decision import Decision, Eviction, Placement
from scheduler.model.identity import Owner, named_in
from scheduler.model.inputs import (
    ClusterView,
    DeploymentView,
    KeptReplica,
    LedgerEntry,
    ScheduleRequest,
)
from scheduler.model.policy import SchedulerOptions
from scheduler.model.received import check_names, read_entry, read_need
from scheduler.model.version import SCHEDULER_VERSION
from scheduler.model.wire import from_wire, to_wire
from scheduler.placement.limits.queue_limits import evicted_workloads, next_timeouts
from scheduler.placement.policy_document import (
    InvalidPolicyError,
    read_policy,
    write_policy,
)
from scheduler.planning.offline import (
    Documents,
    decide_documents,
    offline_cluster,
    offline_deployment,
    offline_fleet,
    plan_offline,
    sort_documents,
)
from scheduler.planning.questions import (
    Offer,
    can_drain,
    cluster_of_class,
    headroom,
    offers,
)
from scheduler.planning.settle import settle
from scheduler.planning.trees import decision_tree, engine_trees
from scheduler.planning.whatif import (
    MAINTENANCE,
    Changes,
    DeploymentDiff,
    explain_plan,
    plan,
    with_changes,
)

# The fleet: clusters, the ledger of replicas, and their serialized state.
__all__ = [
    "ClusterView",
    "Fleet",
    "InputsDigest",
    "LedgerEntry",
    "Owner",
    "SchedulerOptions",
    "SnapshotReader",
    "cluster_view",
    "decision_state",
    "evicted_workloads",
    "expiries",
    "named_in",
    "next_expiry",
    "next_timeouts",
    "pack_rows",
    "pool_report",
    "restore_decision_state",
    "snapshot",
    "unpack_rows",
]

# Decisions about deployments, and their explanations.
__all__ += [
    "SCHEDULER_VERSION",
    "Decision",
    "DeploymentView",
    "Eviction",
    "ExplainedDecision",
    "KeptReplica",
    "NamespaceCapacityUse",
    "Placement",
    "PoolCapacityUse",
    "QuotaUse",
    "ScheduleRequest",
    "apply",
    "check_names",
    "combined_cache",
    "decide",
    "decide_and_explain",
    "decide_some",
    "decision_tree",
    "deployment_view",
    "engine_trees",
    "from_wire",
    "namespace_use",
    "pool_use",
    "quota_use",
    "read_entry",
    "read_need",
    "reasons",
    "template_digest",
    "to_wire",
]

# Plans over manifests or over a copy of the fleet.
__all__ += [
    "MAINTENANCE",
    "Changes",
    "DeploymentDiff",
    "Documents",
    "Offer",
    "can_drain",
    "cluster_of_class",
    "decide_documents",
    "explain_plan",
    "headroom",
    "offers",
    "offline_cluster",
    "offline_deployment",
    "offline_fleet",
    "plan",
    "plan_offline",
    "priority_class_problem",
    "settle",
    "sort_documents",
    "with_changes",
]

# Checks of texts that users write.
__all__ += [
    "InvalidPolicyError",
    "check_selector",
    "parse_version",
    "read_policy",
    "selector_cost",
    "untolerated",
    "write_policy",
]
