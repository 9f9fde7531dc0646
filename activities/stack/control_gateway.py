"""Install the parts of the control cluster's gateway step by step, or remove them.

No step waits for workloads. The message of an incomplete step names the missing part,
and the workflow runs the step again. Objects in the desired state are not changed.
"""

from collections.abc import Callable
from datetime import timedelta

from activities.clients.helm.port import HelmPort
from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId, Selection
from activities.cluster_objects.deletion import Deleter, list_served
from activities.cluster_objects.ownership import owner_of
from activities.heartbeat import Progress
from activities.observe import stack as judge
from activities.render.gateway import objects
from activities.render.objects.manifest import RenderedObject, RenderOwner
from activities.stack import balancers, releases
from activities.stack.definitions import apply_definitions
from activities.stack.ownership import RELEASE_CONFLICT
from activities.stack.releases import workload
from api_types import labels
from api_types.errors import NameConflict
from api_types.messages.cluster_work import Connection
from api_types.messages.gateway_work import InstallStepResult, RunInstallStep
from api_types.messages.stack import HelmRelease, UninstallRelease
from api_types.pins import charts
from api_types.resources.inference_gateway import SINGLETON_NAME

Report = Callable[[Progress], None]

_KIND = "InferenceGateway"
_DONE = InstallStepResult(done=True)
# How long one attempt waits for objects that it deleted. The next attempt continues.
_GONE_WITHIN = timedelta(seconds=20)
_SHOWN_MAX = 3


async def install_step(
    cluster: ClusterApi, helm: HelmPort, order: RunInstallStep, report: Report
) -> InstallStepResult:
    """Run one step.

    Raises NameConflict if an object belongs to another owner, and Helm's errors.
    """
    owner = RenderOwner(_KIND, "", SINGLETON_NAME, order.uid, generation=0)
    match order.step:
        case "crds":
            await apply_definitions(cluster, await _definitions(helm, order), report)
            # Check this before the first installation, which would have to be removed
            # again.
            for item in (
                *_class_objects(owner, order),
                *_gateway_objects(owner, order),
            ):
                _check_owner(
                    ObjectId.of(item.manifest),
                    await cluster.get(ObjectId.of(item.manifest)),
                )
            return _DONE
        case "metallb":
            return await _metallb(cluster, helm)
        case "address-pool":
            return await _apply(
                cluster, objects.address_pool(owner, order.address_pool)
            )
        case "traefik":
            return await _release(cluster, helm, objects.traefik(order.traefik_version))
        case "envoy-gateway":
            release = objects.envoy_gateway(order.envoy_version)
            return await _release(cluster, helm, release, with_definitions=False)
        case "gateway-class":
            await cluster.create(_namespace())
            return await _apply(cluster, _class_objects(owner, order))
        case _:
            await cluster.create(_namespace())
            return await _apply(cluster, _gateway_objects(owner, order))


async def remove_step(
    cluster: ClusterApi,
    helm: HelmPort,
    where: Connection,
    order: RunInstallStep,
    report: Report,
) -> InstallStepResult:
    """Remove the objects of one step.

    Definitions are kept, because deleting them would delete all routes.
    """

    async def uninstalled(pin: charts.ChartPin) -> InstallStepResult:
        release = UninstallRelease(
            connection=where,
            cluster_uid=order.uid,
            name=pin.release,
            namespace=pin.namespace,
            wait_seconds=int(_GONE_WITHIN.total_seconds()),
        )
        gone = await releases.uninstall(cluster, helm, release, report)
        return _remaining([str(item) for item in gone.remaining])

    owner = RenderOwner(_KIND, "", SINGLETON_NAME, order.uid, generation=0)
    match order.step:
        case "crds":
            return _DONE
        case "metallb":
            return await uninstalled(charts.METALLB)
        case "address-pool":
            pool = objects.address_pool(owner, order.address_pool)
            return await _delete(cluster, pool, order, report)
        case "traefik":
            result = await uninstalled(charts.TRAEFIK)
            return await _service_is_gone(cluster) if result.done else result
        case "envoy-gateway":
            return await uninstalled(charts.ENVOY_GATEWAY)
        case "gateway-class":
            return await _delete(cluster, _class_objects(owner, order), order, report)
        case _:
            gateway = _gateway_objects(owner, order)
            result = await _delete(cluster, gateway, order, report)
            return await _balancers_are_gone(cluster) if result.done else result


async def _definitions(helm: HelmPort, order: RunInstallStep) -> list[Json]:
    if order.backend == "Traefik":
        return objects.definitions()
    release = objects.envoy_gateway(order.envoy_version)
    of_chart = await releases.definitions_of(helm, [release])
    return objects.envoy_definitions(of_chart)


def _class_objects(owner: RenderOwner, order: RunInstallStep) -> list[RenderedObject]:
    gateway_class = objects.gateway_class(owner, order.backend)
    if order.backend == "Traefik":
        return [gateway_class]
    return [objects.envoy_proxy(owner), gateway_class]


def _gateway_objects(owner: RenderOwner, order: RunInstallStep) -> list[RenderedObject]:
    gateway = objects.gateway(owner, order.backend)
    # The Gateway never runs without its policy.
    return (
        [objects.client_policy(owner), gateway]
        if order.backend == "Envoy"
        else [gateway]
    )


# Releases


async def _release(
    cluster: ClusterApi,
    helm: HelmPort,
    release: HelmRelease,
    *,
    with_definitions: bool = True,
) -> InstallStepResult:
    if await helm.status(release.name, release.namespace) is None:
        problems = await releases.conflicts_of(cluster, helm, release)
        if problems:
            raise NameConflict(
                f"control cluster: {'; '.join(problems[:_SHOWN_MAX])}: {_advice()}",
                RELEASE_CONFLICT,
            )
    ensured = await releases.ensure(helm, release, with_definitions=with_definitions)
    lagging = []
    for text in ensured.workloads:
        target = workload(text)
        found = await cluster.get(target)
        lag = _JUDGES[target.kind](found) if found else judge.MISSING
        if lag.why and lag.gates:
            lagging.append(
                f"{target.kind.kind} {target.namespace}/{target.name}: {lag.why}"
            )
    return InstallStepResult(done=not lagging, message="; ".join(lagging[:_SHOWN_MAX]))


_JUDGES = {
    kinds.DEPLOYMENT: judge.deployment,
    kinds.STATEFUL_SET: judge.stateful_set,
    kinds.DAEMON_SET: judge.daemon_set,
}


async def _metallb(cluster: ClusterApi, helm: HelmPort) -> InstallStepResult:
    result = await _release(cluster, helm, objects.metallb())
    if not result.done:
        return result
    selector = f"{labels.SERVICE_NAME}={objects.METALLB_WEBHOOK}"
    slices = await list_served(
        cluster, Selection(kinds.ENDPOINT_SLICE, charts.METALLB.namespace, selector)
    )
    if any(each.get("endpoints") for each in slices):
        # The kinds of MetalLB are served from now on.
        await cluster.resources(refresh=True)
        return _DONE
    return InstallStepResult(
        done=False,
        message=f"Service {charts.METALLB.namespace}/{objects.METALLB_WEBHOOK} "
        "has no endpoint yet",
    )


async def _service_is_gone(cluster: ClusterApi) -> InstallStepResult:
    """Wait for the Service too, because nothing would delete its load balancer later."""
    target = ObjectId(kinds.SERVICE, charts.TRAEFIK.namespace, objects.SERVICE)
    return _remaining([str(target)] if await cluster.get(target) else [])


async def _balancers_are_gone(cluster: ClusterApi) -> InstallStepResult:
    """Wait for the Services that Envoy Gateway created for the Gateway.

    Only Envoy Gateway deletes them, and the Gateway is gone before them. Traefik creates
    none.
    """
    left = await balancers.remaining_of_gateway(cluster, labels.CONTROL_GATEWAY_NAME)
    return _remaining([str(each) for each in left])


# Objects


async def _apply(cluster: ClusterApi, items: list[RenderedObject]) -> InstallStepResult:
    """Apply objects, and wait until the Gateway API objects among them are accepted."""
    lagging = []
    for item in items:
        target = ObjectId.of(item.manifest)
        _check_owner(target, await cluster.get(target))
        stored = await cluster.apply(item.manifest)
        if target.kind not in (kinds.GATEWAY, kinds.GATEWAY_CLASS):
            continue
        why = judge.accepted(stored).why
        if why:
            lagging.append(f"{target.kind.kind} {target.name}: {why}")
    return InstallStepResult(done=not lagging, message="; ".join(lagging))


def _check_owner(target: ObjectId, live: Json | None) -> None:
    # An object of an earlier InferenceGateway, which was deleted by force, is adopted.
    if live and not _is_of_a_gateway(live):
        raise NameConflict(
            f"control cluster: {target} exists already and belongs to {owner_of(live)}: "
            f"{_advice()}"
        )


def _is_of_a_gateway(live: Json) -> bool:
    """Return whether an object belongs to this InferenceGateway or an earlier one."""
    return owner_of(live)[:3] == (_KIND, "", SINGLETON_NAME)


async def _delete(
    cluster: ClusterApi,
    items: list[RenderedObject],
    order: RunInstallStep,
    report: Report,
) -> InstallStepResult:
    served = await cluster.resources()
    found = [ObjectId.of(item.manifest) for item in reversed(items)]
    targets = [target for target in found if target.kind in served]
    remaining: list[str] = []
    for uid, own in (await _by_owner(cluster, targets, order)).items():
        deleter = Deleter(cluster, uid, report, None)
        gone = await deleter.until_gone(own, _GONE_WITHIN)
        remaining += [str(item) for item in gone.remaining]
    return _remaining(remaining)


async def _by_owner(
    cluster: ClusterApi, targets: list[ObjectId], order: RunInstallStep
) -> dict[str, list[ObjectId]]:
    """Return the objects to delete by the uid of their InferenceGateway."""
    if not order.of_predecessors:
        return {order.uid: targets}
    owned: dict[str, list[ObjectId]] = {}
    for target in targets:
        live = await cluster.get(target)
        if live and _is_of_a_gateway(live):
            owned.setdefault(owner_of(live).uid, []).append(target)
    return owned


def _remaining(items: list[str]) -> InstallStepResult:
    more = f" and {len(items) - _SHOWN_MAX} more" if len(items) > _SHOWN_MAX else ""
    if not items:
        return _DONE
    return InstallStepResult(
        done=False, message=f"not gone yet: {', '.join(items[:_SHOWN_MAX])}{more}"
    )


def _namespace() -> dict[str, object]:
    return {
        "apiVersion": kinds.NAMESPACE.api_version,
        "kind": kinds.NAMESPACE.kind,
        "metadata": {"name": labels.SYSTEM_NAMESPACE},
    }


def _advice() -> str:
    return (
        "delete it, or install the gateway yourself and annotate the InferenceGateway "
        f"with {labels.STACK}=external"
    )
