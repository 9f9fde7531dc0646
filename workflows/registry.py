"""All workflows, with the sandbox in which they run.

A worker runs them in `runner()`, which is the sandbox behind the guards of `runner.py`.
A replay uses `sandbox()`, without the guard against progress outside a workflow task,
because a recorded history may end beyond its last task. Packages of this project pass
through the sandbox. They are deterministic by construction, and a new import for every
run would cost more than the run.
"""

from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import (
    SandboxedWorkflowRunner,
    SandboxRestrictions,
)

from workflows.cloud_cluster.workflow import CloudClusterWorkflow
from workflows.endpoint_directory.workflow import EndpointDirectoryWorkflow
from workflows.fleet_scheduler.cache.carry_over import audit_ledger, pack_cache
from workflows.fleet_scheduler.decide_activity import decide_batch
from workflows.fleet_scheduler.policy_record import find_policy_record
from workflows.fleet_scheduler.rebuild.activities import (
    await_accounts,
    list_for_rebuild,
    read_accounts,
)
from workflows.fleet_scheduler.rebuild.takeover import read_lost_state
from workflows.fleet_scheduler.workflow import FleetSchedulerWorkflow
from workflows.inference_class import InferenceClassWorkflow
from workflows.inference_cluster.workflow import InferenceClusterWorkflow
from workflows.inference_gateway.workflow import InferenceGatewayWorkflow
from workflows.model_cache.workflow import ModelCacheWorkflow
from workflows.model_deployment.workflow import ModelDeploymentWorkflow
from workflows.model_endpoint import ModelEndpointWorkflow
from workflows.model_replica.workflow import ModelReplicaWorkflow
from workflows.model_service.workflow import ModelServiceWorkflow
from workflows.redelivery import RedeliveryWorkflow
from workflows.runner import CheckingRunner, GuardedRunner
from workflows.stack_upgrades.workflow import StackUpgradesWorkflow

ENTITIES = (
    InferenceClassWorkflow,
    InferenceClusterWorkflow,
    InferenceGatewayWorkflow,
    ModelCacheWorkflow,
    ModelDeploymentWorkflow,
    ModelEndpointWorkflow,
    ModelReplicaWorkflow,
    ModelServiceWorkflow,
)
# One workflow per namespace. Its first message starts it.
DIRECTORIES = (EndpointDirectoryWorkflow,)
# One workflow. Its first message starts it.
SINGLETONS = (StackUpgradesWorkflow,)
# One workflow per cluster at a cloud. The messages of its InferenceCluster start it.
CLOUDS = (CloudClusterWorkflow,)
# One workflow per receiver that refuses signals. The first refused signal starts it.
REDELIVERIES = (RedeliveryWorkflow,)

SCHEDULER_WORKFLOWS = (FleetSchedulerWorkflow,)
BESIDE_SCHEDULER = (*ENTITIES, *DIRECTORIES, *SINGLETONS, *CLOUDS, *REDELIVERIES)
WORKFLOWS = (*BESIDE_SCHEDULER, *SCHEDULER_WORKFLOWS)
SCHEDULER_ACTIVITIES = (decide_batch, pack_cache, audit_ledger)
# These activities call entities, so they run in the workers of entities.
REBUILD_ACTIVITIES = (
    list_for_rebuild,
    read_accounts,
    await_accounts,
    find_policy_record,
    read_lost_state,
)

PASSED_THROUGH = (
    "api_types",
    "scheduler",
    "activities",
    "workflows",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "yaml",
    "celpy",
)


def runner() -> GuardedRunner:
    """Return the runner in which a worker runs every workflow."""
    return GuardedRunner(sandbox())


def unsandboxed() -> CheckingRunner:
    """Return the runner for reading a history.

    It needs no sandbox, because the recorded run had one. Other code runs in the
    process of the reader.
    """
    return CheckingRunner(UnsandboxedWorkflowRunner())


def sandbox() -> CheckingRunner:
    """Return the runner for the replay of a history.

    It has no guard against progress outside a workflow task, because the history may
    end beyond its last task.
    """
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return CheckingRunner(SandboxedWorkflowRunner(restrictions=restrictions))
