"""Mutants of the behaviours that clusters need in a real account at a cloud.

`tests.mutants.kept` contains them.
"""

from tests.mutants.edits import Mutant

EKS = "activities/clouds/eks"
GROUPS = f"{EKS}/wanted/node_groups.py"
MACHINES = f"{EKS}/wanted/machines.py"
FAILURES = f"{EKS}/failures.py"
GKE_CLUSTER = "activities/clouds/gke/wanted/cluster.py"
READINESS = "workflows/cloud_cluster/readiness.py"
EKS_PLANS = "tests/activities/clouds/test_eks.py"
EKS_MACHINES = "tests/activities/clouds/test_eks_machines.py"
EKS_ERRORS = "tests/activities/clouds/eks/test_failures.py"
GKE_PLANS = "tests/activities/clouds/test_gke.py"
READY = "tests/workflows/cloud_cluster/test_readiness.py"
DECISIONS = "tests/workflows/cloud_cluster/test_decisions.py"
PROVIDED = "tests/workflows/inference_cluster/test_cloud_pools.py"

AT_CLOUDS = (
    # Trouble of an object that was ready.
    Mutant(
        "workflows/cloud_cluster/shown.py",
        "trouble",
        "entry.health is not None and entry not in failing",
        "False",
        "tests/workflows/cloud_cluster/test_shown.py",
    ),
    Mutant(READINESS, "_is_sound", "entry.health is None", "True", READY),
    # A cluster is ready without every pool, and a pool without machines has no capacity.
    Mutant(READINESS, "is_ready", "_core(wanted)", "list(wanted)", READY),
    Mutant(READINESS, "is_ready", "not serving", "False", READY),
    Mutant(READINESS, "_View.state_of", "lacks and is_pool(each)", "False", READY),
    Mutant(
        "workflows/inference_cluster/cloud_pools.py",
        "provided_nodes",
        "not found.lacks_nodes",
        "True",
        PROVIDED,
    ),
    # Zones that lack the machines of the system pool.
    Mutant(
        f"{EKS}/wanted/zones.py",
        "chosen_zones",
        "[zone for zone in others if facts.is_offered(SYSTEM_MACHINE, zone)]",
        "others",
        "tests/activities/clouds/test_eks_zones.py",
    ),
    # Final refusals with an ambiguous code.
    Mutant(
        FAILURES,
        "issue_error",
        "class_by_text(code, text) or _ISSUES.get(code)",
        "_ISSUES.get(code)",
        EKS_ERRORS,
    ),
    Mutant(
        FAILURES,
        "says_exists",
        "class_by_text(code, _message(error)) is not Busy",
        "True",
        "tests/activities/clouds/eks/test_corpus.py::test_the_error_table_gives_the_verdict",
    ),
    # Upgrades of full pools.
    Mutant(
        GROUPS,
        "gpu_group",
        "{'maxUnavailable': 1, 'updateStrategy': 'MINIMAL'}",
        "{'maxUnavailable': 1}",
        EKS_PLANS,
    ),
    Mutant(GKE_CLUSTER, "gpu_pool", "_WITHOUT_SPARE", "{}", GKE_PLANS),
    Mutant(GKE_CLUSTER, "cluster_object", "maintenance_policy(inputs.gke)", "{}", GKE_PLANS),
    # Interfaces for EFA.
    Mutant(GROUPS, "_interface", "True", "False", EKS_PLANS),
    Mutant(
        GROUPS,
        "_launch_template",
        "data['TagSpecifications'] = inputs.tag_specifications('network-interface', key, name)",
        "",
        EKS_MACHINES,
    ),
    Mutant(
        GROUPS,
        "interfaces_of",
        "there or inputs.facts.machine(pool.nodes.instance_type).interfaces",
        "()",
        EKS_PLANS,
    ),
    Mutant(
        MACHINES,
        "_described",
        "1 if int(each.get('MaximumNetworkInterfaces', 2)) > 1 else 0",
        "1",
        EKS_MACHINES,
    ),
    # Processors, partitions and the support of a version.
    Mutant(
        GROUPS,
        "gpu_group",
        "bool(inputs.facts.machine(nodes.instance_type).arm)",
        "False",
        EKS_MACHINES,
    ),
    Mutant(
        f"{EKS}/wanted/partitions.py",
        "node_principal_of",
        "partition_of(region) in ('aws-cn', 'aws-iso', 'aws-iso-b')",
        "False",
        EKS_MACHINES,
    ),
    Mutant(
        f"{EKS}/wanted/control_plane.py",
        "control_plane",
        "{'supportType': 'STANDARD'}",
        "{}",
        EKS_MACHINES,
    ),
    # Nodes of the account that a manifest names.
    Mutant(
        "activities/clouds/gke/wanted/foundation.py",
        "foundation",
        "inputs.gke.node_service_account is None",
        "True",
        GKE_PLANS,
    ),
    # Growing pauses between rebuilds.
    Mutant(
        "workflows/cloud_cluster/failures.py", "delay_of_rebuild", "2 ** doubled", "1", DECISIONS
    ),
    # The fixed costs of a cluster.
    Mutant(
        "client/planning/cloud_costs.py",
        "_items",
        "each.kind in _ITEMS",
        "False",
        "tests/client/planning/test_cloud_costs.py",
    ),
)
