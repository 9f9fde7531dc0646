"""The ServingStack of a cluster, as a view of its InferenceCluster's state.

There is no ServingStack workflow. All functions are pure.
"""

from typing import Any

from activities.render.stack.install import Action
from api_types import labels
from api_types.resources.serving_stack import (
    ServingStack,
    ServingStackStatus,
    StackComponentStatus,
    StackStageStatus,
)
from api_types.resources.status import Condition, EventRecord, GatewayAddress
from workflows.entity.conditions import TRUE, condition_of
from workflows.inference_cluster.gateway import gateway_of
from workflows.inference_cluster.spec import connection_of, is_managed
from workflows.inference_cluster.stack.plan import (
    coverage,
    is_carried_out,
    open_stages,
    steps_of,
)
from workflows.inference_cluster.stack.verdict import stage_text, texts_of
from workflows.inference_cluster.stack_state import StackState
from workflows.inference_cluster.state import ClusterState

KIND = "ServingStack"
_EVENTS = (
    "Adopted",
    "ComposingBackend",
    "GatewayAddressChanged",
    "LeftAlone",
    "LoadBalancersRemaining",
    "NotOwned",
    "Restarted",
    "StackChanged",
    "StackComplete",
    "StackRepaired",
)
# The prefix of events about failed steps. Their reason is the error type.
_OF_STEPS = "stack: "


def shown_stack(name: str, state: ClusterState) -> dict[str, Any]:
    """Return the stack of a cluster as a ServingStack manifest with status.

    Return {} if Modelplane does not install the stack, or cannot install it yet.
    """
    if (
        state.spec is None
        or not is_managed(state)
        or connection_of(name, state) is None
    ):
        return {}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": labels.SYSTEM_NAMESPACE,
        "labels": {labels.CLUSTER: name},
        "uid": state.uid,
        "generation": state.stack.plans,
        "resourceVersion": str(state.resource_version),
        "creationTimestamp": state.creation_timestamp,
    }
    if state.deleting:
        metadata["deletionTimestamp"] = state.deletion_timestamp
    api_version = ServingStack.model_fields["api_version"].default
    return {
        "apiVersion": api_version,
        "kind": KIND,
        "metadata": metadata,
        "spec": _spec(name, state),
        "status": _status(state).wire(),
    }


def _spec(name: str, state: ClusterState) -> dict[str, Any]:
    """Return the planned spec.

    Before the first plan, return the connection's secret only.
    """
    if state.stack.plan is not None:
        return dict(state.stack.plan.spec)
    connection = connection_of(name, state)
    if connection is None:
        return {}
    secret = {"type": "Kubeconfig", "name": connection.name, "key": connection.key}
    return {"secrets": [secret]}


def _status(state: ClusterState) -> ServingStackStatus:
    stack, address = state.stack, gateway_of(state).address
    ready = _condition(state, "BackendReady", "Ready")
    deleting = _condition(state, "Deleting", "Deleting")
    observed = stack.plans if is_carried_out(stack) else max(stack.plans - 1, 0)
    stages = open_stages(stack) if stack.plan else []
    return ServingStackStatus(
        observed_generation=observed,
        phase=_phase(state, ready),
        source=(state.spec or {})["cluster"]["source"],
        gateway=GatewayAddress(address=address) if address else None,
        components=_components(stack),
        stages=tuple(
            StackStageStatus(
                stage=stage.number,
                title=stage.title,
                since=stack.stages.get(stage.number, ""),
                late=stage.number in stack.late,
                message=stage_text(stack, stage),
            )
            for stage in stages
        ),
        conditions=tuple(filter(None, (ready, deleting))),
        events=tuple(event for event in state.events if _is_of_stack(event)),
    )


def _condition(state: ClusterState, of_cluster: str, shown_as: str) -> Condition | None:
    found = condition_of(state.conditions, of_cluster)
    return found.model_copy(update={"type": shown_as}) if found else None


def _is_of_stack(event: EventRecord) -> bool:
    return event.reason in _EVENTS or event.message.startswith(_OF_STEPS)


def _phase(state: ClusterState, ready: Condition | None) -> str:
    if state.deleting:
        return "Deleting"
    if ready is not None and ready.status == TRUE:
        return "Ready"
    if state.stack.complete:
        return "Degraded"
    return "Progressing" if state.stack.plan else "Pending"


def _components(stack: StackState) -> tuple[StackComponentStatus, ...]:
    """Return the status of the plan's releases, in installation order."""
    if stack.plan is None:
        return ()
    steps = [
        step
        for step in steps_of(stack)
        if step.action is Action.RELEASE and step.key in stack.plan.releases
    ]
    done, now = dict.fromkeys(stack.done), coverage(stack)
    found = []
    for step in steps:
        release, installed = stack.plan.releases[step.key], stack.releases.get(step.key)
        waits = ", ".join(need for need in step.needs if need not in done)
        lag = texts_of(stack, step.key)
        if step.key in stack.plan.adopted:
            lag = stack.plan.kept.get(step.key, "")
        if not lag and step.key not in done:
            lag = f"waits for {waits}" if waits else "is being installed"
        elif not lag and stack.covered.get(step.key) != now.get(step.key):
            lag = "installed, not observed yet"
        found.append(
            StackComponentStatus(
                name=step.key,
                release=release.name,
                namespace=release.namespace,
                version=release.version,
                revision=installed.revision if installed else 0,
                stage=step.stage.number,
                lag=lag,
            )
        )
    return tuple(found)
