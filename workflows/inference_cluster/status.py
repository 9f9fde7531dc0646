"""The conditions and status fields of an InferenceCluster. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from api_types import labels, names, queues
from api_types.taints import is_drained
from workflows.entity.conditions import FALSE, TRUE, UNKNOWN, Verdict
from workflows.entity.failures import WAITING_FOR_WORKER, Failure
from workflows.inference_cluster.cloud_pools import shown_objects
from workflows.inference_cluster.cloud_state import CloudLink
from workflows.inference_cluster.gaps import missing_features
from workflows.inference_cluster.gateway import Gateway, gateway_of
from workflows.inference_cluster.silence import routes_message
from workflows.inference_cluster.spec import (
    class_names,
    is_created,
    is_managed,
    is_only_planned,
    missing_classes,
)
from workflows.inference_cluster.stack.verdict import stack_verdict
from workflows.inference_cluster.stack_state import StackState
from workflows.inference_cluster.state import ClusterState, KnownClass


class ClusterStatusInputs(NamedTuple):
    """The input of the verdicts.

    Attributes:
        unwatched: since when and why no observer runs. Empty if one runs.
        unresponsive: since when and why the observer gets no answer.
        unobserved: why some objects are not observed.
        unsupported: why no replica can ever run on the cluster.
        old_claims: a note if claims use a beta version of DRA.
        stack: the managed stack. None if Modelplane does not install it.
        cloud: the CloudCluster's state. None if Modelplane does not create the cluster.
        only_planned: whether the managed stack is planned and not installed.

    """

    source: str
    missing_classes: Sequence[str]
    failure: Failure
    connected_once: bool
    was_ready: bool
    unwatched: str
    unresponsive: str
    gateway: Gateway
    stack: StackState | None
    unobserved: str = ""
    unsupported: str = ""
    old_claims: str = ""
    cloud: CloudLink | None = None
    only_planned: bool = False


def view_of(state: ClusterState) -> ClusterStatusInputs:
    observed = state.observed
    unresponsive = unobserved = ""
    if observed and not observed.reachable:
        unresponsive = (
            f"no answer since {state.unreachable_since}: {observed.error}; "
            f"{routes_message(state)}"
        )
    elif observed and observed.error:
        unobserved = f"some objects of the cluster are not observed: {observed.error}"
    return ClusterStatusInputs(
        source=(state.spec or {})["cluster"]["source"],
        missing_classes=missing_classes(state),
        failure=state.failure,
        connected_once=state.facts is not None,
        was_ready=state.was_ready,
        unwatched=unwatched_message(state),
        unresponsive=unresponsive,
        unobserved=unobserved,
        unsupported=unsupported_message(state),
        old_claims=old_claims_message(state),
        gateway=gateway_of(state),
        stack=state.stack if is_managed(state) else None,
        cloud=state.cloud if is_created(state) else None,
        only_planned=is_only_planned(state),
    )


def unsupported_message(state: ClusterState) -> str:
    """Return why no pool of a connected cluster can provide a device, or "".

    The result is "" while a class is unknown, because it may offer other devices.
    """
    classes = [state.classes.get(name) for name in class_names(state)]
    if (
        state.facts is None
        or state.facts.dra_version
        or not classes
        or not all(known and _needs_dra(known) for known in classes)
    ):
        return ""
    return (
        f"Kubernetes {state.facts.kubernetes_version} serves no version of "
        "resource.k8s.io (DRA), which the classes of all pools need to claim devices: "
        "upgrade the cluster, or use classes whose devices have claim: DevicePlugin"
    )


def old_claims_message(state: ClusterState) -> str:
    """Return a message if claims use a beta version of DRA, otherwise ""."""
    version = state.facts.dra_version if state.facts else ""
    return (
        f"claims use resource.k8s.io/{version}; Kubernetes 1.34 and later serve v1"
        if "beta" in version
        else ""
    )


def _needs_dra(known: KnownClass) -> bool:
    claims = [device.get("claim", "DRA") for device in known.spec.get("devices", ())]
    return "DRA" in claims and "DevicePlugin" not in claims


def unserved_message(base_queue: str) -> str:
    return (
        f"no worker serves task queue {base_queue}; "
        f"start one that reaches the cluster, {_serving(base_queue)}"
    )


def unwatched_message(state: ClusterState) -> str:
    """Return since when and why no observer runs, and what to do. "" if one runs."""
    if not (state.unwatched_since or state.unserved_queue):
        return ""
    since = (
        f"not watched since {state.unwatched_since}"
        if state.unwatched_since
        else "not watched"
    )
    if not state.unserved_queue:
        return f"{since}: waits for the first report of a new observer"
    base = state.annotations.get(labels.TASK_QUEUE, queues.CLUSTERS)
    return (
        f"{since}: no worker accepted the watch on task queue {state.unserved_queue}; "
        f"start one that reaches the cluster, {_serving(base)}, "
        "or raise worker.maxConcurrentWatches of the running workers"
    )


def _serving(base_queue: str) -> str:
    names = f"with queues.serve: [{base_queue}]"
    if base_queue == queues.CLUSTERS:
        return f"{names} or without that setting"
    return names


def cluster_verdict(view: ClusterStatusInputs) -> Verdict:
    """Return the verdict of `ClusterReady`.

    A class that is deleted after the first Ready is shown, but the cluster stays ready.
    """
    missing = ", ".join(sorted(view.missing_classes))
    if view.source != "Existing" and view.cloud is None:
        message = (
            f"this release does not provision {view.source} clusters; "
            "use an existing one with source: Existing"
        )
        return Verdict(FALSE, "ProviderNotSupported", message)
    if missing and not view.was_ready:
        return Verdict(
            FALSE,
            "WaitingForClasses",
            f"InferenceClass {missing} does not exist; apply it",
        )
    at_cloud = cloud_verdict(view.cloud) if view.cloud is not None else None
    if at_cloud is not None:
        return at_cloud
    failure = view.failure
    if failure.type == "ClusterUnreachable":
        return Verdict(FALSE, "Unreachable", failure.message)
    if failure.type in ("CredentialsInvalid", "WorkerClockWrong"):
        return Verdict(FALSE, failure.type, failure.message)
    if failure.type == WAITING_FOR_WORKER:
        return Verdict(UNKNOWN, failure.type, failure.message)
    if failure.type:
        return Verdict(FALSE, "Provisioning", f"{failure.type}: {failure.message}")
    if not view.connected_once:
        return Verdict(FALSE, "Provisioning", "connecting")
    if view.unsupported:
        return Verdict(FALSE, "UnsupportedCluster", view.unsupported)
    if view.unwatched:
        # Earlier observations may be outdated, so nothing new is placed here. Existing
        # objects stay as they are.
        return Verdict(UNKNOWN, WAITING_FOR_WORKER, view.unwatched)
    if view.unresponsive:
        return Verdict(UNKNOWN, "Unreachable", view.unresponsive)
    deleted = (
        f"InferenceClass {missing} was deleted; its pools take no new replica"
        if missing
        else ""
    )
    trouble = view.cloud.trouble if view.cloud is not None else ""
    return Verdict(
        TRUE,
        "ClusterRunning",
        "; ".join(filter(None, (trouble, deleted, view.unobserved, view.old_claims))),
    )


def cloud_verdict(cloud: CloudLink) -> Verdict | None:
    """Return `ClusterReady` of a missing cluster, or None if the cluster can be used.

    A cluster that was ready once stays ready if only one of its pools has a problem.
    """
    if cloud.missing:
        return Verdict(
            FALSE,
            "Provisioning",
            "all cloud objects were deleted or abandoned; delete the cluster",
        )
    report = cloud.report
    if report is None:
        return Verdict(FALSE, "Provisioning", "planning the cloud objects")
    if cloud.was_ready and report.usable:
        return None
    return Verdict(FALSE, report.reason or "Provisioning", report.message)


def backend_verdict(view: ClusterStatusInputs) -> Verdict:
    """Return `BackendReady`: whether the serving stack's gateway has an address."""
    if cluster_verdict(view).status != TRUE:
        return Verdict(
            UNKNOWN if view.connected_once else FALSE,
            "WaitingForCluster",
            "the cluster is not ready",
        )
    if view.stack is not None:
        return stack_verdict(
            view.stack, view.gateway.address, only_planned=view.only_planned
        )
    if view.gateway.address:
        return Verdict(TRUE, "BackendHealthy", "")
    return Verdict(
        FALSE,
        "Installing",
        view.gateway.problem
        or f"Gateway {labels.SYSTEM_NAMESPACE}/{labels.GATEWAY_NAME} has no address",
    )


def ready_verdict(view: ClusterStatusInputs) -> Verdict:
    """Return `Ready`.

    If not True, it shows the cluster's or else the backend's verdict.
    """
    for verdict in (cluster_verdict(view), backend_verdict(view)):
        if verdict.status != TRUE:
            why = ": ".join(filter(None, (verdict.reason, verdict.message)))
            return Verdict(
                verdict.status, "Unavailable" if view.was_ready else "Creating", why
            )
    return Verdict(TRUE, "Available", "")


def occupied_message(name: str, state: ClusterState) -> str:
    """Return which replicas the deletion waits for, and how to move those that stay."""
    if state.occupied is None:
        return "waits for the scheduler to report which replicas are on the cluster"
    verb = "is" if len(state.occupied) == 1 else "are"
    replicas = f"waits until ModelReplica {', '.join(state.occupied)} {verb} gone"
    if is_drained(state.spec or {}):
        return (
            f"{replicas}; the scheduler evicts all except those that tolerate the "
            f"taint {labels.MAINTENANCE}: delete their ModelDeployments"
        )
    evict = f"`modelplane delete inferencecluster/{name} --evict`"
    return f"{replicas}; {evict} moves replicas to other clusters"


def drivers(pools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map each device class of the published pools to its DRA driver."""
    devices = [device for pool in pools for device in pool["devices"]]
    return {
        device["deviceClassName"]: device["driver"]
        for device in devices
        if device.get("deviceClassName") and device.get("driver")
    }


def status_fields(name: str, state: ClusterState) -> dict[str, Any]:
    """Return the kind's own status fields, such as the pools and the gateway."""
    status: dict[str, Any] = {"namespace": labels.SYSTEM_NAMESPACE}
    if state.facts:
        status["providerConfigRef"] = {"name": names.connection_handle(name)}
    at_cloud = state.cloud.report.storage_class if state.cloud.report else ""
    storage_class = state.facts.storage_class_name if state.facts else at_cloud
    if storage_class:
        status["cache"] = {"storageClassName": storage_class}
    if address := gateway_of(state).address:
        status["gateway"] = {"address": address}
    if state.pools:
        # In a deletion, nobody has to provide nodes or features.
        hidden = ("shortage",) if state.deleting else ()
        status["gpuPools"] = [
            {field: value for field, value in pool.items() if field not in hidden}
            for pool in state.pools
        ]
    if (missing := missing_features(state)) and not state.deleting:
        status["missingFeatures"] = missing
    if state.cloud.events:
        events = [*state.events, *state.cloud.events]
        status["events"] = [
            event.wire() for event in sorted(events, key=lambda event: event.last)
        ]
    if rows := shown_objects(state):
        status["cloudObjects"] = rows
    if state.observed and state.observed.nodes:
        status["nodes"] = [pool.wire() for pool in state.observed.nodes]
    return status
