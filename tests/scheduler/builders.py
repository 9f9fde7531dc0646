"""Builders of small fleets for the scheduler's tests, with defaults for everything
else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from api_types.names import replica_name
from scheduler.cel.bounded_cache import BoundedCache
from scheduler.decide import apply, decide
from scheduler.fleet.fleet import Fleet
from scheduler.hardware.device_sets import make_set
from scheduler.hardware.template import compile_template
from scheduler.model.decision import Decision, EnginePlacement
from scheduler.model.devices import DeviceEntry
from scheduler.model.inputs import (
    ClusterTaint,
    ClusterToleration,
    ClusterView,
    DeploymentView,
    EngineView,
    LedgerEntry,
    MemberView,
    PoolView,
    RequestView,
    ScheduleRequest,
)
from scheduler.model.policy import SchedulerOptions
from scheduler.model.rules import MatchRules

DRIVER = "gpu.nvidia.com"
NOW = 1_700_000_000_000
NAMESPACE = "ml"


def at_least(memory: str) -> str:
    """Return a selector for GPUs of at least this memory."""
    return f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{memory}")) >= 0'


def below(memory: str) -> str:
    """Return a selector for GPUs of less than this memory."""
    return f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{memory}")) < 0'


def gpu(
    memory: str = "141Gi",
    count: int = 8,
    claim: str = "DRA",
    name: str = "gpu",
    device_class: str = DRIVER,
) -> DeviceEntry:
    resource = "nvidia.com/gpu" if claim == "DevicePlugin" else ""
    return DeviceEntry(
        name,
        claim,
        DRIVER,
        device_class if claim == "DRA" else "",
        count,
        capacity=(("memory", memory),),
        resource_name=resource,
    )


def nic(
    link: str = "infiniband", count: int = 8, claim: str = "DRA", name: str = "nic"
) -> DeviceEntry:
    device_class = "nic.example.com" if claim == "DRA" else ""
    return DeviceEntry(
        name,
        claim,
        "nic.example.com",
        device_class,
        count,
        attributes=(("linkType", "string", link),),
    )


IS_NIC = 'device.driver == "nic.example.com"'
IS_GPU = f'device.driver == "{DRIVER}"'
IS_INFINIBAND = (
    f'{IS_NIC} && device.attributes["nic.example.com"].linkType == "infiniband"'
)


def pool(
    name: str = "p", nodes: int = 1, *entries: DeviceEntry, **fields: Any
) -> PoolView:
    return PoolView(name, nodes, make_set(entries or (gpu(),)), **fields)


def cluster(name: str, *pools: PoolView | int, **fields: Any) -> ClusterView:
    """Make a Ready cluster; a number stands for one matching pool `p` of that many
    nodes.
    """
    taints = tuple(
        taint(text) if isinstance(text, str) else text
        for text in fields.pop("taints", ())
    )
    views = tuple(pool("p", p) if isinstance(p, int) else p for p in pools)
    return ClusterView(
        name,
        **{
            "ready": True,
            "gateway_address": f"{name}.example",
            **fields,
            "taints": taints,
            "pools": views,
        },
    )


def taint(text: str) -> ClusterTaint:
    """Make a taint from `key=value:Effect` or `key:Effect`."""
    head, effect = text.rsplit(":", 1)
    key, _, value = head.partition("=")
    return ClusterTaint(key, value, effect)


def tolerate(
    key: str = "", operator: str = "Exists", value: str = "", effect: str = ""
) -> ClusterToleration:
    return ClusterToleration(key, operator, value, effect)


def fleet(
    *clusters: ClusterView, options: SchedulerOptions | None = None, now: int = NOW
) -> Fleet:
    made = Fleet(options)
    for view in clusters:
        made.put_cluster(view, now)
    return made


def ask(*selectors: str, count: int = 1, name: str = "gpu") -> RequestView:
    return RequestView(name, count, selectors or (at_least("141Gi"),))


def alone(*requests: RequestView) -> MemberView:
    """Make a Standalone member; by default with one GPU of 141Gi."""
    return MemberView(requests=requests or (ask(),))


def leader(*requests: RequestView) -> MemberView:
    """Make a Leader; without requests it claims nothing."""
    return MemberView("Leader", 1, requests)


def worker(nodes: int = 1, *requests: RequestView) -> MemberView:
    return MemberView("Worker", nodes, requests or (ask(),))


def engine(
    name: str = "main", *members: MemberView, copies: int = 1, **fields: Any
) -> EngineView:
    return EngineView(name, members or (alone(),), copies, **fields)


def gang(workers: int = 1, **fields: Any) -> EngineView:
    return engine("main", leader(ask()), worker(workers), **fields)


def deployment(
    *engines: EngineView,
    want: int = 1,
    name: str = "m",
    namespace: str = NAMESPACE,
    **fields: Any,
) -> DeploymentView:
    return DeploymentView(
        namespace,
        name,
        **{
            "uid": f"uid-{namespace}-{name}",
            "generation": 1,
            "replicas": want,
            "engines": engines or (engine(),),
            "template": "v1",
            **fields,
        },
    )


def placed_engines(
    view: DeploymentView, pools: str | Sequence[str], world: Fleet, at: str
) -> tuple[EnginePlacement, ...]:
    """Return the engines of a deployment as the scheduler places them on these pools.

    One name serves all engines.
    """
    compiled = compile_template(view.engines, MatchRules())
    names = [pools] * len(view.engines) if isinstance(pools, str) else pools
    info = world.clusters.get(at)
    return tuple(
        compiled.place(i, name, (info and info.device_set(name)) or make_set((gpu(),)))
        for i, name in enumerate(names)
    )


def put_replicas(
    world: Fleet,
    view: DeploymentView,
    *places: str,
    pools: str | Sequence[str] = "p",
    **fields: Any,
) -> list[str]:
    """Put replicas `cluster/index` of a deployment into the fleet, Bound and Ready;
    return their uids.
    """
    uids = []
    for place in places:
        at, index = place.rsplit("/", 1)
        name = fields.get("name") or replica_name(
            view.namespace, view.name, at, int(index)
        )
        uid = f"{view.namespace}-{view.name}-{place}-{name}"
        entry = LedgerEntry(
            uid,
            view.namespace,
            view.name,
            at,
            int(index),
            name,
            placed_engines(view, pools, world, at),
            **{
                "ready": True,
                "serving": True,
                "template": view.template,
                **{k: v for k, v in fields.items() if k != "name"},
            },
        )
        world.put_replica(entry)
        uids.append(uid)
    return uids


def decided(
    world: Fleet,
    view: DeploymentView,
    now: int = NOW,
    request_id: str = "ask-1",
    **fields: Any,
) -> Decision:
    """Decide one request; the fleet does not change."""
    return decide(world, [ScheduleRequest(request_id, view, **fields)], now)[0]


def settled(
    world: Fleet,
    view: DeploymentView,
    now: int = NOW,
    request_id: str = "ask-1",
    **fields: Any,
) -> Decision:
    """Decide one request and apply it."""
    decision = decided(world, view, now, request_id, **fields)
    apply(world, decision, view)
    return decision


def places(decision: Decision) -> list[str]:
    return [f"{p.cluster}/{p.index}" for p in decision.placements]


def pools_of(decision: Decision) -> list[str]:
    """Return the pool of each engine, placement by placement."""
    return [e.pool for p in decision.placements for e in p.engines]


def actions(decision: Decision) -> dict[str, str]:
    return {f"{p.cluster}/{p.index}": p.action for p in decision.placements}


def evicted(decision: Decision) -> dict[str, str]:
    """Return the reason per replica uid."""
    return {e.uid: e.reason for e in decision.evictions}


def codes(decision: Decision) -> dict[str, int]:
    """Return the number of rejected clusters per filter code."""
    found: dict[str, int] = {}
    for group in decision.diagnosis.groups:
        found[group.code] = found.get(group.code, 0) + group.count
    return found


def condition(decision: Decision, kind: str = "ReplicasScheduled") -> tuple[str, str]:
    return next(
        ((c.status, c.reason) for c in decision.conditions if c.type == kind), ("", "")
    )


def message(decision: Decision, kind: str = "ReplicasScheduled") -> str:
    return next((c.message for c in decision.conditions if c.type == kind), "")


def bind_all(world: Fleet, *, ready: bool = True) -> None:
    """Bind every reservation, as if its workflow had started."""
    for entry in list(world.entries()):
        if entry.state == "Reserved":
            world.bind(entry.uid, NOW)
        world.observe(entry.uid, ready=ready, serving=ready)
        if ready:
            world.end_update(entry.uid)


def report_releasing(world: Fleet, uid: str) -> None:
    """Record that the workflow of a replica is shutting down, as its deployment reports
    it.
    """
    entry = world.replica(uid)
    assert entry is not None
    world.put_replica(entry.as_releasing(NOW))


def finish_releases(world: Fleet) -> None:
    """Remove every releasing replica, as if its objects were deleted."""
    for entry in list(world.entries()):
        if entry.state == "Releasing":
            world.release(entry.uid)


def relabelled(view: ClusterView, labels: Mapping[str, str]) -> ClusterView:
    return replace(view, labels=labels)


def uids_of(decision: Decision) -> Iterable[str]:
    return (p.uid for p in decision.placements)


def forget(cache: BoundedCache[Any, Any]) -> None:
    cache._young, cache._old, cache._characters = {}, {}, [0, 0]
