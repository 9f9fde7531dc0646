"""Mutants of the behaviours that clusters need in a real account at a cloud.

`tests.mutants.kept` contains them.
"""

from tests.mutants.edits import Mutant

EKS = "activities/clouds/eks"
GROUPS = f"{EKS}/wanted/node_groups.py"
NODE_GROUPS = f"{EKS}/handlers/node_groups.py"
MACHINES = f"{EKS}/wanted/machines.py"
FAILURES = f"{EKS}/failures.py"
GKE_CLUSTER = "activities/clouds/gke/wanted/cluster.py"
READINESS = "workflows/cloud_cluster/readiness.py"
ENTRIES = "workflows/cloud_cluster/entries.py"
GUARD_DUTY = f"{EKS}/leftovers/made_by_services.py"
EKS_PLANS = "tests/activities/clouds/test_eks.py"
EKS_MACHINES = "tests/activities/clouds/test_eks_machines.py"
EKS_ERRORS = "tests/activities/clouds/eks/test_failures.py"
GKE_PLANS = "tests/activities/clouds/test_gke.py"
READY = "tests/workflows/cloud_cluster/test_readiness.py"
DECISIONS = "tests/workflows/cloud_cluster/test_decisions.py"
TROUBLE = "tests/activities/clouds/eks/test_trouble.py"
ENDPOINT_GONE = f"{TROUBLE}::test_the_endpoint_and_group_of_guardduty_are_deleted_after_the_cluster"
OTHERS_STAY = f"{TROUBLE}::test_endpoints_and_groups_of_others_are_listed_and_stay"
CLOCK = (
    "tests/activities/clouds/eks/test_clock.py::test_an_answer_about_the_clock_names_the_difference"
)
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
    Mutant("workflows/cloud_cluster/shown.py", "trouble", "entry not in failing", "True", READY),
    Mutant(READINESS, "_is_sound", "entry.health is None", "True", READY),
    Mutant(
        ENTRIES,
        "Inventory._healthy",
        "before is None or (before.error, before.code) != (health.error, health.code)",
        "True",
        READY,
    ),
    Mutant(ENTRIES, "Inventory._healthy", "entry.trouble_since = ''", "", READY),
    Mutant(
        "activities/clouds/gke/handlers/states.py",
        "health_of",
        "status not in _UNHEALTHY",
        "True",
        "tests/activities/clouds/gke/test_states.py"
        "::test_a_pool_that_runs_with_errors_lacks_nodes_although_google_names_no_condition",
    ),
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
    Mutant(
        f"{EKS}/handlers/zones.py",
        "refuse_zones",
        "before.union(zones)",
        "zones",
        "tests/activities/clouds/eks/test_zones.py"
        "::test_zones_that_eks_rejects_one_after_the_other_are_replaced",
    ),
    Mutant(
        f"{EKS}/handlers/control_plane.py",
        "EksClusterHandler.create",
        "not refused",
        "False",
        "tests/activities/clouds/eks/test_zones.py"
        "::test_a_refusal_that_names_none_of_the_zones_is_no_reason_for_another_plan",
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
        EKS_ERRORS,
    ),
    Mutant(FAILURES, "_class_of", "by_text in (InvalidInput, QuotaExceeded)", "False", EKS_ERRORS),
    Mutant(
        NODE_GROUPS,
        "NodegroupHandler.look",
        "issues_error(texts)",
        "issues_error(issues)",
        "tests/activities/clouds/eks/test_corpus_of_node_groups.py"
        "::test_the_scaling_group_gives_the_reason_that_eks_leaves_out",
    ),
    # Upgrades of full pools.
    Mutant(
        GROUPS,
        "gpu_group",
        "{'maxUnavailable': 1, 'updateStrategy': 'MINIMAL'}",
        "{'maxUnavailable': 1}",
        EKS_PLANS,
    ),
    Mutant(
        NODE_GROUPS,
        "NodegroupHandler._compared",
        "_strategy(call) != _strategy(group)",
        "False",
        "tests/activities/clouds/eks/test_changes.py"
        "::test_labels_taints_and_the_update_strategy_are_restored",
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
        GROUPS,
        "interfaces_of",
        "there or inputs.facts.machine(pool.nodes.instance_type).interfaces",
        "inputs.facts.machine(pool.nodes.instance_type).interfaces",
        EKS_MACHINES,
    ),
    Mutant(
        MACHINES,
        "_described",
        "1 if int(each.get('MaximumNetworkInterfaces', 2)) > 1 else 0",
        "1",
        EKS_MACHINES,
    ),
    # Objects that GuardDuty created, and objects of others.
    Mutant(GUARD_DUTY, "_is_managed", "tags_of(item).get(_TAG) == 'true'", "True", OTHERS_STAY),
    Mutant(
        GUARD_DUTY,
        "GuardDutyEndpoints.find",
        "str(each.get('ServiceName', '')).endswith(_SERVICE)",
        "True",
        OTHERS_STAY,
    ),
    Mutant(
        GUARD_DUTY,
        "GuardDutyGroups.find",
        "not scene.vpc or _exists(scene)",
        "True",
        ENDPOINT_GONE,
    ),
    Mutant(
        GUARD_DUTY,
        "GuardDutyEndpoints.remove",
        "any(each.id == leftover.id for each in self.find(scene))",
        "False",
        ENDPOINT_GONE,
    ),
    Mutant(
        "activities/clouds/gke/load_balancers.py",
        "BalancerSearch._targets",
        "self._kept |= {last_of(every.group) for every in each.backends}",
        "",
        "tests/activities/clouds/gke/test_balancers.py"
        "::test_a_load_balancer_of_users_keeps_the_machines_that_it_serves",
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
    # The worker's identity, the root user, and the clock of the worker.
    Mutant(
        "activities/clouds/permitted.py",
        "PermittedSources.check_account",
        "account not in self.accounts",
        "False",
        "tests/activities/clouds/gke/test_federation.py"
        "::test_a_credential_that_leads_elsewhere_is_refused",
    ),
    Mutant(
        f"{EKS}/provider.py",
        "EksProvider._identified",
        "_ROOT.fullmatch(str(answer['Arn']))",
        "False",
        "tests/activities/clouds/eks/test_roles.py::test_root_credentials_are_refused",
    ),
    Mutant(
        FAILURES,
        "failure",
        "is_wrong(offset) and _class_of(error, operation, purpose, None) is CredentialsInvalid",
        "False",
        CLOCK,
    ),
    Mutant(FAILURES, "failure", "code_of(error) in _CLOCK_CODES", "False", CLOCK),
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
    Mutant(
        ENTRIES,
        "Inventory._broken",
        "entry.retry_at = self._context.later(delay)",
        "",
        DECISIONS,
    ),
    Mutant(
        ENTRIES,
        "Inventory._broken",
        "entry.rebuilds < limit and (not is_permanent(failure.type))",
        "entry.rebuilds < limit",
        DECISIONS,
    ),
    Mutant(
        ENTRIES, "Inventory.removed", "entry.rebuilds += entry.phase == 'Broken'", "", DECISIONS
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
