"""What an InferenceCluster shows of itself: conditions and status fields, as pure functions of its state."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from api_types import labels, names, queues
from api_types.taints import is_drained
from workflows.entity.conditions import FALSE, TRUE, UNKNOWN, Verdict
from workflows.entity.failures import WAITING_FOR_WORKER, Failure
from workflows.inference_cluster.cloud_state import CloudLink
from workflows.inference_cluster.gateway import Gateway, gateway_of
from workflows.inference_cluster.spec import class_names, is_created, is_managed, missing_classes
from workflows.inference_cluster.stack.verdict import stack_verdict
from workflows.inference_cluster.stack_state import StackState
from workflows.inference_cluster.state import ClusterState, KnownClass


class ClusterView(NamedTuple):
    """All that the verdicts read.

    `unwatched`: since when and why no observer runs, empty if one does. `unresponsive`: since when and why it gets no answer. `stack`: that
    which is managed; None where others install it. `unsupported`: why no replica can run there, whatever is repaired. `cloud`: of a cluster
    that is created at a cloud.
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


def view_of(state: ClusterState) -> ClusterView:
    """Read the state of a cluster that has a spec."""
    observed = state.observed
    return ClusterView(
        source=(state.spec or {})["cluster"]["source"],
        missing_classes=missing_classes(state),
        failure=state.failure,
        connected_once=state.facts is not None,
        was_ready=state.was_ready,
        unwatched=unwatched_message(state),
        unresponsive=f"no answer since {state.unreachable_since}: {observed.error}" if observed and not observed.reachable else "",
        unobserved=f"not everything there is observed: {observed.error}" if observed and observed.reachable and observed.error else "",
        unsupported=unsupported_message(state),
        old_claims=old_claims_message(state),
        gateway=gateway_of(state),
        stack=state.stack if is_managed(state) else None,
        cloud=state.cloud if is_created(state) else None,
    )


def unsupported_message(state: ClusterState) -> str:
    """Say that no pool of a connected cluster can give a device; empty if one may. A class that is not known may offer other devices."""
    classes = [state.classes.get(name) for name in class_names(state)]
    if state.facts is None or state.facts.dra_version or not classes or not all(known and _needs_dra(known) for known in classes):
        return ""
    return (
        f"Kubernetes {state.facts.kubernetes_version} serves no version of resource.k8s.io (DRA), by which every pool's class claims its "
        "devices: upgrade the cluster, or give its pools classes with devices of a device plugin (claim: DevicePlugin)"
    )


def old_claims_message(state: ClusterState) -> str:
    """Say that claims are made in a version of DRA that is not the stable one; empty if they are not."""
    version = state.facts.dra_version if state.facts else ""
    return f"claims are made in resource.k8s.io/{version}; v1 is served from Kubernetes 1.34 on" if "beta" in version else ""


def _needs_dra(known: KnownClass) -> bool:
    claims = [device.get("claim", "DRA") for device in known.spec.get("devices", ())]
    return "DRA" in claims and "DevicePlugin" not in claims


def unserved_message(base_queue: str) -> str:
    """Say that no worker serves a base queue, and what to do."""
    return f"no worker serves task queue {base_queue}; start one that reaches the cluster, {_serving(base_queue)}"


def unwatched_message(state: ClusterState) -> str:
    """Say since when no observer runs that should, and what to do; empty if one does."""
    if not (state.unwatched_since or state.unserved_queue):
        return ""
    since = f"not watched since {state.unwatched_since}" if state.unwatched_since else "not watched"
    if not state.unserved_queue:
        return f"{since}: waits for the first report of a new watch"
    base = state.annotations.get(labels.TASK_QUEUE, queues.CLUSTERS)
    more = f"start one that reaches the cluster, {_serving(base)}, or raise worker.maxConcurrentWatches of those that run"
    return f"{since}: no worker took the watch from task queue {state.unserved_queue}; {more}"


def _serving(base_queue: str) -> str:
    names = f"with queues.serve: [{base_queue}]"
    return names if base_queue != queues.CLUSTERS else f"{names} or without that setting"


def cluster_verdict(view: ClusterView) -> Verdict:
    """Give `ClusterReady`. A class that is deleted after the first Ready is shown, but does not make the cluster unready."""
    missing = ", ".join(sorted(view.missing_classes))
    if view.source != "Existing" and view.cloud is None:
        message = f"this release does not provision {view.source} clusters; use an existing one with source: Existing"
        return Verdict(FALSE, "ProviderNotSupported", message)
    if missing and not view.was_ready:
        return Verdict(FALSE, "WaitingForClasses", f"InferenceClass {missing} does not exist; apply it")
    if view.cloud is not None and (at_cloud := cloud_verdict(view.cloud)) is not None:
        return at_cloud
    failure = view.failure
    if failure.type == "ClusterUnreachable":
        return Verdict(FALSE, "Unreachable", failure.message)
    if failure.type == "CredentialsInvalid":
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
        # What was observed before may not hold any more: nothing new is placed here, and everything stays as it is.
        return Verdict(UNKNOWN, WAITING_FOR_WORKER, view.unwatched)
    if view.unresponsive:
        return Verdict(UNKNOWN, "Unreachable", view.unresponsive)
    deleted = f"InferenceClass {missing} was deleted; its pools take no new replica" if missing else ""
    trouble = view.cloud.trouble if view.cloud is not None else ""
    return Verdict(TRUE, "ClusterRunning", "; ".join(filter(None, (trouble, deleted, view.unobserved, view.old_claims))))


def cloud_verdict(cloud: CloudLink) -> Verdict | None:
    """Give `ClusterReady` of a cluster that does not exist yet, or not any more; None for one that can be connected.

    Trouble with one of its pools does not make a cluster unready that was ready once.
    """
    if cloud.missing:
        return Verdict(FALSE, "Provisioning", "everything at the cloud was deleted or given up; delete the cluster")
    report = cloud.report
    if report is None:
        return Verdict(FALSE, "Provisioning", "the cloud is asked what can be created")
    if cloud.was_ready and report.usable:
        return None
    return Verdict(FALSE, report.reason or "Provisioning", report.message)


def backend_verdict(view: ClusterView) -> Verdict:
    """Give `BackendReady`: the gateway of the serving stack has an address."""
    if cluster_verdict(view).status != TRUE:
        return Verdict(UNKNOWN if view.connected_once else FALSE, "WaitingForCluster", "the cluster is not ready")
    if view.stack is not None:
        return stack_verdict(view.stack, view.gateway.address)
    if view.gateway.address:
        return Verdict(TRUE, "BackendHealthy", "")
    return Verdict(FALSE, "Installing", view.gateway.problem or f"Gateway {labels.SYSTEM_NAMESPACE}/{labels.GATEWAY_NAME} has no address")


def ready_verdict(view: ClusterView) -> Verdict:
    """Give `Ready`: that of cluster and backend which is not, the cluster first."""
    for verdict in (cluster_verdict(view), backend_verdict(view)):
        if verdict.status != TRUE:
            why = f"{verdict.reason}: {verdict.message}"
            return Verdict(verdict.status, "Unavailable" if view.was_ready else "Creating", why)
    return Verdict(TRUE, "Available", "")


def occupied_message(name: str, state: ClusterState) -> str:
    """Say for which replicas the deletion of cluster `name` waits, and what can be done about those that stay."""
    if state.occupied is None:
        return "waits for the scheduler to report which replicas are on the cluster"
    replicas = f"waits until ModelReplica {', '.join(state.occupied)} {'is' if len(state.occupied) == 1 else 'are'} gone"
    if is_drained(state.spec or {}):
        return f"{replicas}; the scheduler evicts all but those that tolerate the taint {labels.MAINTENANCE}: delete their ModelDeployments"
    return f"{replicas}; `modelplane delete inferencecluster/{name} --evict` moves replicas to other clusters"


def drivers(pools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map each device class that the published pools claim through to the DRA driver behind it."""
    devices = [device for pool in pools for device in pool["devices"]]
    return {device["deviceClassName"]: device["driver"] for device in devices if device.get("deviceClassName") and device.get("driver")}


def status_fields(name: str, state: ClusterState) -> dict[str, Any]:
    """Give the kind's own status fields: what the scheduler sees, and where the gateway is."""
    status: dict[str, Any] = {"namespace": labels.SYSTEM_NAMESPACE}
    if state.facts:
        status["providerConfigRef"] = {"name": names.connection_handle(name)}
    at_cloud = state.cloud.report.storage_class if state.cloud.report else ""
    if storage_class := (state.facts.storage_class_name if state.facts else at_cloud):
        status["cache"] = {"storageClassName": storage_class}
    if address := gateway_of(state).address:
        status["gateway"] = {"address": address}
    if state.pools:
        status["gpuPools"] = state.pools
    if state.observed and state.observed.nodes:
        status["nodes"] = [pool.wire() for pool in state.observed.nodes]
    return status
