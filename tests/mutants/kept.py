"""Mutants that once survived all tests, each with the test that kills it now.

When the code of a mutant changes, write the mutant for the new code. Remove a mutant only together
with the promise that it breaks.
"""

from tests.mutants.edits import Mutant
from tests.mutants.kept_clouds import AT_CLOUDS

ENTITY = "workflows/entity/entity.py"
ADMISSION = "workflows/entity/admission.py"
START = "workflows/entity/start.py"
DOOR = "tests/workflows/entity/test_door.py"
STARTS = "tests/workflows/entity/test_start_arguments.py"
MANIFEST_CHANGES = "tests/workflows/entity/test_manifest_changes.py"
DELETION = "activities/cluster_objects/deletion.py"
DELETIONS = "tests/activities/cluster_objects/test_deletion.py"
INBOX = "workflows/fleet_scheduler/inbox.py"
RELEASES = "tests/workflows/fleet_scheduler/test_releases.py"
UPDATES = "api_types/validation/updates.py"
KUBECONFIG = "activities/clients/kubernetes/kubeconfig.py"
KUBECONFIGS = "tests/activities/clients/kubernetes/test_kubeconfig.py"
STACK = "workflows/inference_cluster/stack/installer.py"
STACK_ORDERS = "tests/workflows/inference_cluster/test_stack_orders.py"
PENDING = "activities/workloads/pending.py"
PROJECTION = "front/store/projection.py"
PROJECTIONS = "tests/front/test_projection.py"
CACHES = "tests/simulation/lives/test_caches.py"
REDELIVERIES = "tests/workflows/test_redelivery.py"
CLOUD_COSTS = "tests/client/planning/test_cloud_costs.py"
EKS_ZONES = "activities/clouds/eks/wanted/zones.py"
CHOSEN_ZONES = "tests/activities/clouds/test_eks_zones.py"
STEADY_TIME = "tests/workflows/entity/test_steady_time.py"

# The rules of manifests, requests and deletions, where a workflow's handlers call them.
AT_THE_DOOR = (
    Mutant(
        ENTITY,
        "Entity.admitted",
        "None if self.state.spec is None else self.manifest()",
        "None",
        DOOR,
    ),
    Mutant(ENTITY, "Entity.check_replace", "self.admitted(message.manifest)", "", DOOR),
    Mutant(
        ENTITY,
        "Entity.check_replace",
        "message.resource_version and not self.context.is_manifest_of(message.resource_version)",
        "False",
        DOOR,
    ),
    Mutant(
        ENTITY,
        "Entity.check_replace",
        "self.state.deleting and not self._takes_while_deleting(message.manifest)",
        "False",
        DOOR,
    ),
    Mutant(
        ENTITY,
        "Entity.check_replace",
        "message.request_id in self.state.requests",
        "False",
        MANIFEST_CHANGES,
    ),
    Mutant(ENTITY, "Entity.set_spec", "not self.accept_request(message.request_id)", "False", DOOR),
    Mutant(ENTITY, "Entity.set_spec", "self.state.deleting", "False", DOOR),
    Mutant(
        ENTITY,
        "Entity.set_spec",
        "admission.refuse(self.context, '; '.join(refusal.lines()))",
        "",
        DOOR,
    ),
    Mutant(ENTITY, "Entity.delete", "message.uid and message.uid != self.state.uid", "False", DOOR),
    Mutant(ENTITY, "Entity.delete", "not self.accept_request(message.request_id)", "False", DOOR),
    Mutant(ENTITY, "Entity.force", "not self.accept_request(message.request_id)", "False", DOOR),
    Mutant(ENTITY, "Entity.force", "not self.state.deleting", "False", DOOR),
    Mutant(
        ENTITY, "Entity.retry_now", "not self.accept_request(message.request_id)", "False", DOOR
    ),
    Mutant(ENTITY, "Entity.retry_now", "self.state.attempts = 0", "", DOOR),
    Mutant(
        ENTITY,
        "Entity._accept",
        "manifest = self.admitted(message.manifest)",
        "manifest = load(message.manifest)",
        DOOR,
    ),
    Mutant(ADMISSION, "admitted", "present is not None", "False", DOOR),
    Mutant(ADMISSION, "admitted", "admit_update(load(present), manifest)", "", DOOR),
    Mutant(ADMISSION, "admitted", "not isinstance(document, dict)", "False", DOOR),
    Mutant(
        ADMISSION,
        "admitted",
        "identity != (context.kind, context.namespace, context.name)",
        "False",
        DOOR,
    ),
    Mutant(
        ADMISSION,
        "accept_request",
        "request_id in state.requests",
        "False",
        "tests/workflows/entity/test_admission.py",
    ),
    Mutant(ADMISSION, "store", "context.set_condition('SpecAccepted', TRUE, 'Accepted')", "", DOOR),
    Mutant(
        ADMISSION, "refuse", "context.record_event('Warning', 'InvalidInput', problems)", "", DOOR
    ),
    Mutant(
        ADMISSION,
        "refuse",
        "context.set_condition('SpecAccepted', FALSE, 'InvalidInput', problems)",
        "",
        DOOR,
    ),
    Mutant(
        ADMISSION,
        "refuse",
        "context.set_condition('Ready', FALSE, 'InvalidInput', problems)",
        "",
        DOOR,
    ),
    Mutant(ENTITY, "Entity.__init__", "check_id(self.kind)", "", STARTS),
    Mutant(
        START,
        "check_id",
        "prefix != kind.lower() or len(parts) != len(namespace) + 1",
        "False",
        STARTS,
    ),
    Mutant(
        START,
        "read_carried",
        "argument is not None and not is_continued(workflow.info())",
        "False",
        STARTS,
    ),
    Mutant(START, "is_continued", "info.attempt == 1", "True", STARTS),
    Mutant(START, "is_continued", "not info.cron_schedule", "True", STARTS),
    Mutant(START, "_argument", "len(arguments) > most", "False", STARTS),
)

# Ids and arguments of starts, and messages of other entities.
DEPLOYMENT = "workflows/model_deployment/workflow.py"
UNUSABLE = "tests/workflows/entity/test_unusable_messages.py"
AT_OTHER_DOORS = (
    Mutant(
        "workflows/inference_gateway/workflow.py",
        "InferenceGatewayWorkflow.__init__",
        "check_only_id(self.kind, INFERENCE_GATEWAY.workflow_id)",
        "",
        STARTS,
    ),
    Mutant(
        "workflows/fleet_scheduler/workflow.py",
        "FleetSchedulerWorkflow.__init__",
        "check_only_id(self.kind, FLEET_SCHEDULER_ID)",
        "",
        STARTS,
    ),
    Mutant(
        "workflows/stack_upgrades/workflow.py",
        "StackUpgradesWorkflow.__init__",
        "check_only_id(self.kind, STACK_UPGRADES_ID)",
        "",
        STARTS,
    ),
    Mutant(
        "workflows/stack_upgrades/workflow.py",
        "StackUpgradesWorkflow.__init__",
        "read_carried(arguments, UpgradesState)",
        "None",
        STARTS,
    ),
    Mutant(
        "workflows/endpoint_directory/workflow.py",
        "EndpointDirectoryWorkflow.__init__",
        "read_carried(arguments, DirectoryState)",
        "None",
        STARTS,
    ),
    Mutant(
        "workflows/cloud_cluster/workflow.py",
        "CloudClusterWorkflow.__init__",
        "read_carried(arguments, CloudState)",
        "None",
        STARTS,
    ),
    Mutant(
        "workflows/cloud_cluster/workflow.py",
        "CloudClusterWorkflow.__init__",
        "not cluster",
        "False",
        STARTS,
    ),
    Mutant(DEPLOYMENT, "ModelDeploymentWorkflow.placed", "check_placed(message)", "", UNUSABLE),
    Mutant(DEPLOYMENT, "ModelDeploymentWorkflow.evict", "check_evicted(message)", "", UNUSABLE),
    Mutant(
        DEPLOYMENT,
        "ModelDeploymentWorkflow.scale",
        "self.accept_request(message.request_id)",
        "True",
        UNUSABLE,
    ),
    Mutant(
        DEPLOYMENT,
        "ModelDeploymentWorkflow.record_event",
        "not self.accept_request(message.request_id)",
        "False",
        UNUSABLE,
    ),
    Mutant(
        "workflows/model_replica/workflow.py",
        "ModelReplicaWorkflow.set_template",
        "check_spec(ModelReplicaSpec, message.spec)",
        "",
        UNUSABLE,
    ),
)

# Receivers that take no signals, and clocks that were set back.
NEIGHBOURS = (
    Mutant(
        "activities/messaging/delivering.py",
        "deliver",
        "await asyncio.gather(*map(hand_over, failed))",
        "",
        REDELIVERIES,
    ),
    Mutant(
        "activities/messaging/delivering.py",
        "broadcast",
        "str(progress.get('after', ''))",
        "''",
        REDELIVERIES,
    ),
    Mutant(
        "workflows/redelivery.py",
        "RedeliveryState.hold",
        "room < 0",
        "False",
        REDELIVERIES,
    ),
    Mutant(
        "workflows/redelivery.py",
        "RedeliveryState.hold",
        "size > LIST_BYTES_MAX - _MARGIN_BYTES",
        "False",
        REDELIVERIES,
    ),
    Mutant(
        "workflows/redelivery.py",
        "RedeliveryWorkflow._notify_of_recovery",
        "await self._notify(senders, '')",
        "",
        REDELIVERIES,
    ),
    Mutant(
        "workflows/entity/calls/delivery.py",
        "with_delivery",
        "before is not None and before.run == new.run and _is_late(new, before)",
        "False",
        REDELIVERIES,
    ),
    Mutant(
        "workflows/entity/timers/steady_time.py",
        "SteadyTime.reached",
        "max(moment - self.now(), timedelta())",
        "timedelta()",
        STEADY_TIME,
    ),
    Mutant(
        "workflows/entity/timers/steady_time.py",
        "SteadyTime._offset",
        "max(datetime.fromisoformat(self._carried) - workflow.now(), timedelta())",
        "timedelta()",
        STEADY_TIME,
    ),
    Mutant(
        "workflows/entity/timers/requeue_timer.py",
        "RequeueTimer._fire",
        "self._time.reached(wanted)",
        "",
        "tests/workflows/test_clock_steps.py",
    ),
    Mutant(
        "workflows/fleet_scheduler/rebuild/adoption.py",
        "_is_outdated",
        "last_message > asked_at",
        "False",
        "tests/workflows/fleet_scheduler/test_controller.py",
    ),
)

# Engines whose old and new copies do not fit beside each other.
RECREATED = (
    Mutant(
        "workflows/model_replica/decisions/plan.py",
        "recreated_engines",
        "sizes[name].devices < before.devices",
        "False",
        "tests/workflows/model_replica/test_drain.py",
    ),
    Mutant(
        "activities/workloads/activities.py",
        "_delete_replaced",
        "engine.name in order.recreated",
        "False",
        "tests/activities/workloads/test_workloads.py",
    ),
)

# Fields that may not change once an object exists.
UPDATE_RULES = (
    Mutant(UPDATES, "_cluster", "was != now", "False", DOOR),
    Mutant(
        UPDATES,
        "_cluster",
        "before.source != after.source",
        "False",
        "tests/api_types/validation/test_updates.py",
    ),
    Mutant(UPDATES, "_replica", "old.spec.cluster_name != new.spec.cluster_name", "False", DOOR),
    Mutant(
        UPDATES,
        "_replica",
        "before != after",
        "False",
        "tests/api_types/validation/test_updates.py",
    ),
    Mutant(UPDATES, "_cache", "was != now", "False", DOOR),
    Mutant(UPDATES, "_cache", "_is_staged(old)", "False", DOOR),
    Mutant(UPDATES, "admit_update", "problems", "False", DOOR, number=2),
    Mutant(
        UPDATES, "admit_update", "not same", "False", "tests/api_types/validation/test_updates.py"
    ),
)

# Pods that are deleted without grace, and objects that a teardown leaves alone.
TEARDOWN = (
    Mutant(DELETION, "Deleter.until_gone", "self._force_after is not None", "False", DELETIONS),
    Mutant(
        DELETION,
        "Deleter.until_gone",
        "await _force_delete(self.cluster, dependents, self._force_after)",
        "",
        DELETIONS,
    ),
    Mutant(DELETION, "_force_delete", "overdue > force_after", "False", DELETIONS),
    Mutant(DELETION, "_force_delete", "overdue > force_after", "True", DELETIONS),
    Mutant(DELETION, "_force_delete", "not deleted_at", "False", DELETIONS),
    Mutant(
        DELETION,
        "_force_delete",
        "GroupVersionKind(item['apiVersion'], item['kind']) != POD",
        "False",
        DELETIONS,
    ),
    Mutant(
        DELETION,
        "_force_delete",
        "await cluster.delete(ObjectId.of(item), uid=metadata['uid'], grace_seconds=0)",
        "",
        DELETIONS,
    ),
    Mutant(
        "activities/workloads/activities.py",
        "WorkloadActivities.teardown_replica_step",
        "Deleter(cluster, order.uid, report, self.force_after)",
        "Deleter(cluster, order.uid, report, None)",
        DELETIONS,
    ),
    Mutant(
        "activities/caches/activities.py",
        "CacheActivities.delete_cache_objects",
        "Deleter(cluster, order.uid, report, self.force_after)",
        "Deleter(cluster, order.uid, report, None)",
        DELETIONS,
    ),
    Mutant(
        "activities/workloads/teardown_steps.py",
        "_delete",
        "item['metadata']['labels'].get(labels.COMPONENT) == step.component",
        "True",
        DELETIONS,
    ),
    Mutant(
        "activities/workloads/teardown_steps.py",
        "_delete",
        "[] if order.inventory else "
        "kinds.resolve_all(step.kinds, await deleter.cluster.resources())",
        "[]",
        DELETIONS,
    ),
    Mutant(
        "activities/cluster_objects/ownership.py",
        "owner_of",
        "(metadata.get('labels') or {}).get(labels.MANAGED_BY) != labels.MANAGED_BY_VALUE",
        "False",
        DELETIONS,
    ),
    Mutant(
        "activities/cluster_objects/ownership.py", "conflict", "owner.uid == uid", "True", DELETIONS
    ),
    Mutant(DELETION, "Deleter.until_gone", "self._refusal(found)", "''", DELETIONS),
)

# Single lines that no fast test noticed.
SURVIVORS = (
    Mutant(KUBECONFIG, "_Reader._server", "parts.query or parts.fragment", "False", KUBECONFIGS),
    Mutant(
        KUBECONFIG, "_Reader._server", "parts.query or parts.fragment", "parts.query", KUBECONFIGS
    ),
    Mutant(
        KUBECONFIG,
        "_Reader._server",
        "parts.query or parts.fragment",
        "parts.fragment",
        KUBECONFIGS,
    ),
    Mutant(
        "client/planning/cloud_costs.py",
        "_listed",
        "price is None",
        "False",
        CLOUD_COSTS,
    ),
    Mutant(
        "client/planning/list_prices.py",
        "price_of",
        "region.startswith(_NOT_ANY)",
        "False",
        CLOUD_COSTS,
    ),
    Mutant(
        "workflows/cloud_cluster/converge.py",
        "Converge.object_failed",
        "failure.type == OUTDATED",
        "False",
        "tests/workflows/cloud_cluster/test_decisions.py",
    ),
    Mutant(EKS_ZONES, "chosen_zones", "len(facts.chosen)", "0", CHOSEN_ZONES),
    Mutant(
        "activities/clouds/eks/wanted/inputs.py",
        "EksInputs.group_zones",
        "self.facts.group_zones.get(name, frozenset())",
        "frozenset()",
        CHOSEN_ZONES,
    ),
    Mutant(
        "activities/clouds/eks/wanted/inputs.py",
        "EksInputs.control_plane_zones",
        "zone not in self.facts.without_eks",
        "True",
        CHOSEN_ZONES,
    ),
    Mutant(STACK, "StackInstaller.update", "self._stack.seen.restart", "False", STACK_ORDERS),
    Mutant(STACK, "StackInstaller.update", "self._stack.seen.restart", "True", STACK_ORDERS),
    Mutant(
        STACK,
        "StackInstaller._restarted",
        "self._stack.seen = self._stack.seen.model_copy(update={'restart': False})",
        "",
        STACK_ORDERS,
    ),
    Mutant(STACK, "StackInstaller._restarted", "restarted", "True", STACK_ORDERS),
    Mutant(
        "client/planning/questions.py",
        "_move",
        "len(diff.after) < len(diff.before)",
        "True",
        "tests/client/planning/test_questions.py",
    ),
    Mutant(INBOX, "Inbox._check_unlisted", "uid not in listed", "True", RELEASES),
    Mutant(INBOX, "Inbox._check_unlisted", "entry.state == reasons.RELEASING", "True", RELEASES),
    Mutant(INBOX, "Inbox._check_unlisted", "cache.verification.add(entry)", "", RELEASES),
    Mutant(PROJECTION, "Projection._since", "self.complete", "True", PROJECTIONS),
    Mutant(PROJECTION, "Projection._since", "self.complete", "False", PROJECTIONS),
    Mutant(
        PROJECTION,
        "Projection._since",
        "known.since if known else min(created, version_of(tree))",
        "min(created, version_of(tree))",
        PROJECTIONS,
    ),
    Mutant(
        PROJECTION, "Projection._since", "min(created, version_of(tree))", "created", PROJECTIONS
    ),
    Mutant(
        PROJECTION,
        "Projection._since",
        "min(created, version_of(tree))",
        "version_of(tree)",
        PROJECTIONS,
    ),
    Mutant(
        PENDING,
        "_planned",
        "live or not stays or item.manifest['metadata']['name'] in named",
        "True",
        "tests/activities/workloads/test_planned_claims.py",
    ),
    Mutant(
        PENDING,
        "_planned",
        "live or not stays or item.manifest['metadata']['name'] in named",
        "live or not stays",
        "tests/activities/workloads/test_planned_claims.py",
    ),
    Mutant(
        PENDING,
        "_planned",
        "live or not stays or item.manifest['metadata']['name'] in named",
        "not stays or item.manifest['metadata']['name'] in named",
        "tests/activities/workloads/test_planned_claims.py",
    ),
    Mutant(
        "api_types/validation/wording.py",
        "_unknown",
        "not isinstance(parent_value, Mapping) or wire not in parent_value",
        "True",
        "tests/api_types/validation/test_misplaced_fields.py",
    ),
    Mutant(
        "scheduler/hardware/device_matching.py",
        "need_digest",
        "digest_of([[r.name, r.count, list(r.selectors)] for r in requests]) if requests else ''",
        "''",
        "tests/scheduler/hardware/test_device_matching.py",
    ),
    Mutant(
        "scheduler/explain/cluster_report.py",
        "_PoolDetails._detail",
        "return PoolDetail(reasons.SELECTOR_NO_MATCH, text)",
        "return PoolDetail()",
        "tests/scheduler/explain/test_texts.py",
    ),
    Mutant(
        "scheduler/placement/constraints.py",
        "Constraints._within_skew",
        "count + 1 - lowest > rule.max_skew",
        "count + 1 - lowest >= rule.max_skew",
        "tests/scheduler/placement/test_constraints.py",
    ),
    Mutant(
        "scheduler/placement/score.py",
        "_scaled",
        "(min(max(value, low), high) - low) * _SCALE // (high - low)",
        "(min(max(value, low), high) - low) * _SCALE * (high - low)",
        "tests/scheduler/placement/test_scores.py",
    ),
    Mutant(
        "scheduler/explain/whole_replica.py",
        "choose_pools",
        "nodes > most",
        "nodes >= most",
        "tests/scheduler/explain/test_whole_replica.py",
    ),
    Mutant(
        "workflows/inference_gateway/workflow.py",
        "InferenceGatewayWorkflow.control_observed",
        "seen is None",
        "False",
        "tests/workflows/inference_gateway/test_observations.py",
    ),
    Mutant(
        "workflows/fleet_scheduler/rebuild/activities.py",
        "_page",
        "cluster_of(workflow_id, account) or _cluster(workflow_id, entities)",
        "_cluster(workflow_id, entities)",
        "tests/workflows/fleet_scheduler/rebuild/test_survey.py",
    ),
    Mutant(
        "workflows/model_deployment/adoption.py",
        "ReplicaAdoption._adopt_all",
        "not unresponsive",
        "unresponsive",
        "tests/workflows/model_deployment/test_found_replicas.py",
    ),
    Mutant(
        "scheduler/placement/limits/queue_limits.py",
        "QueueLimits._devices",
        "not queue.pools or pool.name in queue.pools",
        "not queue.pools",
        "tests/scheduler/placement/limits/test_queue_limits.py",
    ),
    Mutant(
        "scheduler/explain/cluster_report.py",
        "_short",
        "declared >= needed",
        "declared > needed",
        "tests/scheduler/fleet/test_capacity.py",
        number=2,
    ),
    Mutant(
        "scheduler/model/fields.py",
        "is_whole",
        "WHOLE_MIN <= value <= WHOLE_MAX",
        "WHOLE_MIN <= value < WHOLE_MAX",
        "tests/scheduler/model/test_fields.py",
    ),
    Mutant(
        "scheduler/explain/conditions.py",
        "cache_condition",
        "DecidedCondition(kind, 'False', 'ModelCacheUnresolved', "
        "f'Waiting for ModelCache {cache.name}')",
        "DecidedCondition('False', kind, 'ModelCacheUnresolved', "
        "f'Waiting for ModelCache {cache.name}')",
        "tests/scheduler/placement/test_filters.py",
    ),
    Mutant(
        "scheduler/hardware/device_matching.py",
        "MemberNeed._match",
        "steps * _WORK_PER_STEP",
        "steps + _WORK_PER_STEP",
        "tests/scheduler/test_work.py",
    ),
    Mutant(
        "client/planning/cloud_changes.py",
        "_different",
        "isinstance(one, Mapping) and isinstance(other, Mapping)",
        "isinstance(other, Mapping)",
        "tests/client/planning/test_cloud_changes.py",
    ),
    Mutant(
        "client/asking/service.py",
        "find_service",
        "gateway or _local_gateway() or _origin(str(at_path(tree, '.status.address') or ''))",
        "gateway and _local_gateway() and _origin(str(at_path(tree, '.status.address') or ''))",
        "tests/client/asking/test_service_address.py",
    ),
)

# Bounds and arithmetic of the scheduler, and messages and answers that lack a part.
CORPUS = "tests/scheduler/cel/test_corpus.py"
CONVERSIONS = "scheduler/cel/runtime/conversions.py"
CALL_ESTIMATES = "scheduler/cel/cost/call_estimates.py"
BOUNDS = (
    Mutant(
        CONVERSIONS,
        "to_uint",
        "math.isfinite(value) and 0 <= value < float(UINT64_MAX)",
        "math.isfinite(value)",
        CORPUS,
    ),
    Mutant(
        CONVERSIONS,
        "to_uint",
        "kind is str and _UNSIGNED.match(value)",
        "kind is str",
        CORPUS,
    ),
    Mutant(
        "scheduler/cel/runtime/list_functions.py",
        "_sum_of_unknown",
        "Duration(0)",
        "Duration(1)",
        CORPUS,
    ),
    Mutant(
        "scheduler/cel/cost/costs.py",
        "_pairs.cost",
        "1 + size_of(args[0]) * size_of(args[1]) * factor",
        "1 + size_of(args[0]) * size_of(args[1]) + factor",
        CORPUS,
    ),
    Mutant(CALL_ESTIMATES, "_replaced", "old.high <= new.low", "not old.high <= new.low", CORPUS),
    Mutant(CALL_ESTIMATES, "_replaced", "old.high <= new.low", "old.high < new.low", CORPUS),
    Mutant(
        "scheduler/hardware/device_matching.py",
        "MemberNeed._match",
        "matcher.work += steps * _WORK_PER_STEP",
        "matcher.work += steps + _WORK_PER_STEP",
        "tests/scheduler/test_work.py",
    ),
    Mutant(
        "workflows/cloud_cluster/shown.py",
        "report_of",
        "plan.storage_class if plan else ''",
        "''",
        "tests/workflows/cloud_cluster/test_shown.py",
    ),
)

# The lobby of the front.
LOBBY = (
    Mutant(
        "front/serving/lobby.py",
        "Lobby.enter",
        "len(self._waiting) >= self.size",
        "False",
        "tests/front/test_lobby.py",
    ),
    Mutant(
        "front/serving/lobby.py",
        "Lobby.end_late",
        "waiting.since <= over",
        "False",
        "tests/front/test_lobby.py",
    ),
)

# Statuses, and deletions.
STATUSES = (
    Mutant(
        "workflows/inference_cluster/reporter.py",
        "Reporter.keep_replicas_informed",
        "self.repeat()",
        "",
        "tests/workflows/inference_cluster/test_withdrawal.py",
    ),
    Mutant(
        "workflows/inference_cluster/stack/removal.py",
        "StackRemoval.update",
        "self._calls.running(PREFLIGHT) and not self._state.forced",
        "False",
        "tests/workflows/inference_cluster/test_teardown.py",
    ),
    Mutant(
        "activities/clusters/watch/observation_index.py",
        "ObservationIndex.put_silence",
        "round(seconds)",
        "0",
        "tests/activities/clusters/watch/test_silence.py",
    ),
    Mutant(
        "workflows/inference_cluster/workflow.py",
        "InferenceClusterWorkflow.tear_down",
        "await self.reporter.keep_replicas_informed()",
        "",
        "tests/workflows/inference_cluster/test_withdrawal.py",
    ),
    Mutant(
        "workflows/model_deployment/decisions/status.py",
        "rollout_progress",
        "replica.entry.get('template') in current",
        "True",
        "tests/workflows/model_deployment/test_adoption.py",
    ),
    Mutant(
        "workflows/model_cache/clusters.py",
        "StagingClusters.list_what_silent_clusters_may_have",
        "self._list_earlier(name, 'the cluster did not answer which caches it holds')",
        "",
        f"{CACHES}::test_a_cluster_that_never_answered_is_listed_with_possible_leftovers",
    ),
    Mutant(
        "workflows/model_cache/clusters.py",
        "StagingClusters._record",
        "self.state.silent.remove(site.name)",
        "",
        f"{CACHES}::test_a_cluster_that_answers_later_is_not_listed",
    ),
    Mutant(
        "workflows/model_cache/staging.py",
        "Staging._remove",
        "done.skipped and step.kind == 'remove'",
        "False",
        f"{CACHES}::test_objects_of_a_terminated_cache_that_cannot_be_taken_over_are_listed",
    ),
    Mutant(
        "workflows/entity/entity.py",
        "Entity.keep",
        "not self.waits_for_users()",
        "False",
        f"{CACHES}::test_a_forced_deletion_lists_its_leftovers",
    ),
)

# Defaults, bounds and texts of messages, requests and objects, which tests passed over.
PASSED_OVER = (
    Mutant(
        "api_types/names.py",
        "label_value",
        "hashed_name(name, ('label', name), _LABEL_MAX)",
        "hashed_name(name, ('label', name), _LABEL_MAX + 1)",
        "tests/api_types/test_label_values.py",
    ),
    Mutant(
        "api_types/resources/model_replica.py",
        "ModelReplicaSpec.serving_mode",
        "self.serving.mode if self.serving else 'Unified'",
        "'Unified'",
        "tests/api_types/validation/test_rules.py",
    ),
    Mutant(
        "api_types/messages/caches.py",
        "CacheChanged",
        "True",
        "False",
        "tests/api_types/messages/test_defaults.py",
    ),
    Mutant(
        "client/commands/ask/chat.py",
        "_ask",
        "stream and 'text/event-stream' in response.headers.get('content-type', '')",
        "stream",
        "tests/client/asking/test_asking.py",
    ),
    Mutant(
        "front/serving/writes/managers.py",
        "_of_earlier_managers",
        "as_applied | {last_applied.ANNOTATION}",
        "as_applied",
        "tests/front/applying/test_apply_requests.py",
    ),
    Mutant(
        "front/serving/reads/reading.py",
        "_continued",
        "all(isinstance(part, str) for part in (kind, namespace, name))",
        "True",
        "tests/front/test_requests.py",
    ),
    Mutant(
        "front/scaling/routes.py",
        "Scaling._scale",
        "request.remote or ''",
        "''",
        "tests/front/scaling/test_admission.py",
    ),
    Mutant(
        "front/store/projection.py",
        "WatchQueue.take",
        "not self.changed",
        "self.changed",
        "tests/front/test_projection.py",
    ),
    Mutant(
        "activities/clients/kubernetes/client.py",
        "KubernetesCluster.delete",
        "options['preconditions'] = given",
        "",
        "tests/activities/clients/kubernetes/test_requests.py",
    ),
    Mutant(
        "activities/clouds/activities.py",
        "_pool_of",
        "kind in _POOL_KINDS",
        "kind not in _POOL_KINDS",
        "tests/activities/clouds/test_plan_of.py",
    ),
    Mutant(
        "activities/clouds/eks/handlers/security_groups.py",
        "SecurityGroupHandler.compared",
        "('authorize_security_group_egress', 'IpPermissionsEgress')",
        "('', 'IpPermissionsEgress')",
        "tests/activities/clouds/eks/test_changes.py",
    ),
    Mutant(
        "activities/render/engines/admission.py",
        "_member",
        "isinstance(value, Mapping)",
        "True",
        "tests/activities/render/engines/test_engines.py",
    ),
)

KEPT: tuple[Mutant, ...] = (
    *AT_THE_DOOR,
    *AT_OTHER_DOORS,
    *UPDATE_RULES,
    *TEARDOWN,
    *SURVIVORS,
    *BOUNDS,
    *PASSED_OVER,
    *NEIGHBOURS,
    *RECREATED,
    *STATUSES,
    *LOBBY,
    *AT_CLOUDS,
)
