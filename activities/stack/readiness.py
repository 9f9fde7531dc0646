"""Observe all parts of a stack, and report parts that are not in the desired state.

Releases are observed through the metadata of Helm's Secrets: one list contains the
revision of each release, and a release that other users changed has another revision.
Only `restart` writes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import chain
from typing import NamedTuple

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.cluster_objects.deletion import list_served
from activities.observe import stack as judge
from activities.observe.stack import MISSING, Shortfall
from activities.render.stack import components, objects
from activities.render.stack.values import AI_GATEWAY_CONTROLLER
from activities.stack import balancers
from activities.stack.definitions import bundle_version
from activities.stack.ownership import object_conflict
from activities.stack.releases import revisions_of, workload
from api_types import labels
from api_types.base import ID_MAX
from api_types.digests import short_hash
from api_types.messages.stack import CheckStack, InstalledRelease, Lag, StackSeen
from api_types.pins import apiversions, charts
from api_types.resources.serving_stack import ServingStackSpec, StackVersions

_DEPLOYED = "deployed"
_LAGS_MAX = 20
_NOTES_MAX = 8
_GATEWAYS_CRD = ObjectId(kinds.CRD, "", "gateways.gateway.networking.k8s.io")
CONTROLLER = ObjectId(
    kinds.DEPLOYMENT, components.AI_GATEWAY.pin.namespace, AI_GATEWAY_CONTROLLER
)
_POOLS = ObjectId(kinds.CRD, "", objects.INFERENCE_POOL_CRD)
_JUDGES: Mapping[GroupVersionKind, Callable[[Json], Shortfall]] = {
    kinds.DEPLOYMENT: judge.deployment,
    kinds.STATEFUL_SET: judge.stateful_set,
    kinds.DAEMON_SET: judge.daemon_set,
    kinds.CRD: judge.definition,
    kinds.GATEWAY_CLASS: judge.accepted,
    kinds.GATEWAY: judge.accepted,
}


class WantedStack(NamedTuple):
    """The stack that a worker's settings describe.

    `digest` is the plan's digest, and `problem` is the reason why the settings produce
    no plan.
    """

    digest: str
    problem: str = ""
    upgrades_at_once: int = 1


async def look(
    cluster: ClusterApi, order: CheckStack, wanted: WantedStack
) -> StackSeen:
    """Observe the stack once. `wanted` is the stack of this worker's settings."""
    parts: list[Awaitable[list[Lag]]] = [
        _releases(cluster, order.releases),
        *(_group(cluster, order, group) for group in order.groups),
    ]
    lags = list(chain.from_iterable(await asyncio.gather(*parts)))
    installed = {release.component for release in order.releases}
    notes, slices = [wanted.problem] if wanted.problem else [], 0
    if components.DRA_DRIVER.key in installed:
        slices, found = await _devices(cluster)
        lags += found
        if not slices:
            notes.append(
                f"no ResourceSlice of {components.GPU_DRIVER} is published: no node has "
                "GPUs yet, or the driver of the nodes does not answer"
            )
    if components.ENVOY_GATEWAY.key in installed:
        notes += await _gateway_api(
            cluster, ServingStackSpec.model_validate(order.spec)
        )
    address, address_events = (
        await _address(cluster) if objects.GATEWAY in order.groups else ("", [])
    )
    restart = components.AI_GATEWAY.key in installed and await _needs_restart(cluster)
    seen = StackSeen(
        wanted=wanted.digest,
        lags=lags[:_LAGS_MAX],
        more=max(0, len(lags) - _LAGS_MAX),
        notes=notes[:_NOTES_MAX],
        address=address,
        address_events=address_events,
        restart=restart,
        device_slices=slices,
        upgrades_at_once=wanted.upgrades_at_once,
    )
    # The number of devices changes with every node. It must not count as a change.
    compared = seen.model_copy(update={"device_slices": min(slices, 1)})
    return seen.model_copy(update={"digest": short_hash(compared.wire())})


# Releases


async def _releases(cluster: ClusterApi, releases: list[InstalledRelease]) -> list[Lag]:
    if not releases:
        return []
    revisions = await revisions_of(cluster, {release.name for release in releases})
    lags = list[Lag]()
    for release in releases:
        name = f"release {release.namespace}/{release.name}"
        found = revisions.get((release.namespace, release.name))
        if found is None:
            lags.append(
                Lag(
                    target=release.component, object=name, why=MISSING.why, missing=True
                )
            )
        elif found.status != _DEPLOYED:
            lags.append(
                Lag(
                    target=release.component,
                    object=name,
                    why=f"its status is {found.status}",
                    missing=True,
                )
            )
        elif release.revision and found.number != release.revision:
            why = (
                f"its revision is {found.number}, and {release.revision} was installed"
            )
            lags.append(
                Lag(
                    target=release.component,
                    object=name,
                    why=why,
                    missing=True,
                    gates=False,
                )
            )
    checks = []
    for release in releases:
        checks += [_workload(cluster, release, text) for text in release.workloads]
    lags += [lag for lag in await asyncio.gather(*checks) if lag]
    if any(release.component == components.PROMETHEUS.key for release in releases):
        lags += await _prometheus(cluster)
    return lags


async def _workload(
    cluster: ClusterApi, release: InstalledRelease, text: str
) -> Lag | None:
    target = workload(text)
    found = await cluster.get(target)
    lag = _lag(release.component, target, found)
    # Helm does not detect a deleted workload: the release still has the state that Helm
    # wrote.
    return lag.model_copy(update={"missing": True}) if lag and found is None else lag


async def _prometheus(cluster: ClusterApi) -> list[Lag]:
    """Check the StatefulSet that the operator creates. No chart contains it."""
    items = await list_served(
        cluster, Selection(kinds.STATEFUL_SET, components.PROMETHEUS.pin.namespace)
    )
    lags = list[Lag]()
    for item in items:
        owners = item["metadata"].get("ownerReferences") or ()
        if any(owner.get("kind") == "Prometheus" for owner in owners):
            lag = _lag(components.PROMETHEUS.key, ObjectId.of(item), item)
            lags += [lag] if lag else []
    return lags


def _lag(target: str, item: ObjectId, found: Json | None) -> Lag | None:
    shortfall = _JUDGES[item.kind](found) if found else MISSING
    return (
        Lag(
            target=target, object=_shown(item), why=shortfall.why, gates=shortfall.gates
        )
        if shortfall.why
        else None
    )


def _shown(item: ObjectId) -> str:
    return f"{item.kind.kind} {item.namespace}/{item.name}".replace(" /", " ")[:ID_MAX]


# Objects


async def _group(cluster: ClusterApi, order: CheckStack, group: str) -> list[Lag]:
    """Check the objects of one group.

    Definitions and namespaces of other owners are used unchanged. Any other object of
    another owner is reported.
    """
    name, uid = order.connection.cluster, order.cluster_uid
    lags = list[Lag]()
    spec = ServingStackSpec.model_validate(order.spec)
    for manifest in objects.references(group, spec):
        target = ObjectId.of(manifest)
        found = await cluster.get(target)
        if found is None or judge.is_being_deleted(found):
            lags.append(
                Lag(
                    target=group,
                    object=_shown(target),
                    why=(judge.DELETED if found else MISSING).why,
                    missing=True,
                )
            )
        elif target.kind not in (kinds.CRD, kinds.NAMESPACE) and (
            problem := object_conflict(found, name, uid)
        ):
            lags.append(Lag(target=group, object=_shown(target), why=problem))
        elif target.kind in _JUDGES and (lag := _lag(group, target, found)):
            lags.append(lag)
    return lags


async def _address(cluster: ClusterApi) -> tuple[str, list[str]]:
    gateway = await cluster.get(
        ObjectId(kinds.GATEWAY, labels.SYSTEM_NAMESPACE, labels.GATEWAY_NAME)
    )
    if gateway and (found := judge.address(gateway)):
        return found, []
    services = await balancers.of_gateway(cluster)
    if not services:
        return "", ["Envoy Gateway made no Service for it yet"]
    events = list[str]()
    for service in services[: balancers.EXPLAINED_MAX]:
        events += await balancers.events_of(cluster, service)
    return "", events[:_NOTES_MAX]


async def _gateway_api(cluster: ClusterApi, spec: ServingStackSpec) -> list[str]:
    """Report a version of the Gateway API other than the expected one."""
    expected = (spec.versions or StackVersions()).gateway_api
    definition = await cluster.get(_GATEWAYS_CRD)
    found = bundle_version(definition) if definition else ""
    if not found or found == expected:
        return []
    problem = (
        f"VersionMismatch: the cluster has Gateway API {found}, and {expected} is "
        f"expected with Envoy Gateway {_envoy_gateway(spec)}"
    )
    return [problem]


def _envoy_gateway(spec: ServingStackSpec) -> str:
    return (
        spec.versions.envoy_gateway if spec.versions else charts.ENVOY_GATEWAY.version
    )


async def _devices(cluster: ClusterApi) -> tuple[int, list[Lag]]:
    """Count the driver's ResourceSlices, and check that the DeviceClass exists."""
    served = await cluster.resources()
    device_class = kinds.resolve((f"{apiversions.DRA_GROUP}/", "DeviceClass"), served)
    slices = kinds.resolve((f"{apiversions.DRA_GROUP}/", kinds.RESOURCE_SLICE), served)
    found = (
        await cluster.get(ObjectId(device_class, "", components.GPU_DRIVER))
        if device_class
        else None
    )
    lags = (
        []
        if found
        else [
            Lag(
                target=components.DRA_DRIVER.key,
                object=f"DeviceClass {components.GPU_DRIVER}",
                why=MISSING.why,
            )
        ]
    )
    if slices is None:
        return 0, lags
    items = await list_served(
        cluster,
        Selection(
            slices, fields=f"spec.driver={components.GPU_DRIVER}", metadata_only=True
        ),
    )
    return len(items), lags


async def _needs_restart(cluster: ClusterApi) -> bool:
    """Return True if the AI gateway started before InferencePool was defined.

    It looks for InferencePools only when it starts.
    """
    definition, controller = await cluster.get(_POOLS), await cluster.get(CONTROLLER)
    moment = judge.established_at(definition) if definition else None
    if (
        moment is None
        or controller is None
        or _was_restarted(controller, definition or {})
    ):
        return False
    selector = ",".join(
        f"{key}={value}" for key, value in sorted(_match_labels(controller).items())
    )
    if not selector:
        return False
    return judge.started_before(
        await list_served(
            cluster, Selection(kinds.POD, CONTROLLER.namespace, selector)
        ),
        moment,
    )


def _match_labels(deployment: Json) -> dict[str, str]:
    selector = (deployment.get("spec") or {}).get("selector") or {}
    return dict(selector.get("matchLabels") or {})


def _was_restarted(deployment: Json, definition: Json) -> bool:
    template = (deployment.get("spec") or {}).get("template") or {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return bool(annotations.get(labels.RESTARTED_AT) == restart_mark(definition))


def restart_mark(definition: Json) -> str:
    """Return the mark of a restart: the definition's uid, for one restart each."""
    return str(definition["metadata"].get("uid") or "")


async def restart(cluster: ClusterApi) -> bool:
    """Restart the AI gateway, once per definition of InferencePool.

    Returns False if there is nothing to restart.
    """
    definition, controller = await cluster.get(_POOLS), await cluster.get(CONTROLLER)
    if definition is None or controller is None:
        return False
    template = {
        "metadata": {"annotations": {labels.RESTARTED_AT: restart_mark(definition)}}
    }
    metadata = {"name": CONTROLLER.name, "namespace": CONTROLLER.namespace}
    await cluster.apply(
        {
            "apiVersion": CONTROLLER.kind.api_version,
            "kind": CONTROLLER.kind.kind,
            "metadata": metadata,
            "spec": {"template": template},
        }
    )
    return True
