"""All workflows, in one place, with the sandbox they run in.

A worker runs them in `runner()`, which is that sandbox behind the guards of `runner.py`. A replay takes `sandbox()`, without the one that
refuses what comes without a task: a recorded history may end beyond its last workflow task. Our own packages pass through the sandbox: they
are deterministic by construction, and importing them anew for every run would cost more than the run.
"""

from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.cloud_cluster.workflow import CloudClusterWorkflow
from workflows.endpoint_directory.workflow import EndpointDirectoryWorkflow
from workflows.fleet_scheduler.cache.carry_over import audit_ledger, pack_cache
from workflows.fleet_scheduler.decide_activity import decide_batch
from workflows.fleet_scheduler.policy_record import find_policy_record
from workflows.fleet_scheduler.rebuild.activities import await_accounts, list_for_rebuild, read_accounts
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
# One per namespace, started by what is sent to it.
DIRECTORIES = (EndpointDirectoryWorkflow,)
# One of all, started by what is sent to it.
SINGLETONS = (StackUpgradesWorkflow,)
# One per cluster at a cloud, started by what its InferenceCluster sends it.
CLOUDS = (CloudClusterWorkflow,)
# One per receiver that takes no signals, started by the first refused signal.
REDELIVERIES = (RedeliveryWorkflow,)

SCHEDULER_WORKFLOWS = (FleetSchedulerWorkflow,)
BESIDE_SCHEDULER = (*ENTITIES, *DIRECTORIES, *SINGLETONS, *CLOUDS, *REDELIVERIES)
WORKFLOWS = (*BESIDE_SCHEDULER, *SCHEDULER_WORKFLOWS)
SCHEDULER_ACTIVITIES = (decide_batch, pack_cache, audit_ledger)
# They call entities, and so run beside those.
REBUILD_ACTIVITIES = (list_for_rebuild, read_accounts, await_accounts, find_policy_record, read_lost_state)

PASSED_THROUGH = ("api_types", "scheduler", "activities", "workflows", "pydantic", "pydantic_core", "annotated_types", "ruamel", "celpy")


def runner() -> GuardedRunner:
    """Give the runner in which a worker runs every workflow of this project."""
    return GuardedRunner(sandbox())


def unsandboxed() -> CheckingRunner:
    """Give the runner for reading a history: what is replayed was made in the sandbox, and other code runs beside it."""
    return CheckingRunner(UnsandboxedWorkflowRunner())


def sandbox() -> CheckingRunner:
    """Give the runner for the replay of a history, which may end beyond the last workflow task."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return CheckingRunner(SandboxedWorkflowRunner(restrictions=restrictions))
