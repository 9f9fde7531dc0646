"""The live fleet, read for planning.

Clusters and deployments come from their own workflows. The ledger and the other state
of decisions come from the scheduler. If an object does not answer, planning fails,
because a guess about it would look like an answer.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from activities.messaging.search_attributes import (
    NAME,
    NAMESPACE,
    READY,
    visibility_query,
)
from api_types import labels
from api_types.clock import now_ms
from api_types.messages.capacity import with_plain_admission
from api_types.payloads.packing import unpack
from api_types.resources.kinds import BY_KIND
from api_types.resources.parts.referenced_caches import referenced_caches
from fleet_client.errors import NoAnswer, NotFound
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.targets import SCHEDULER, CloudTarget, Target
from fleet_client.refs.tree import Tree, condition, deleting
from fleet_client.temporal.control_plane import ControlPlane
from scheduler import (
    DeploymentView,
    Fleet,
    LedgerEntry,
    Owner,
    cluster_view,
    combined_cache,
    deployment_view,
    read_policy,
    reasons,
    restore_decision_state,
    unpack_rows,
)

# Each retry lasts as long as a query. A worker that has just started replays its
# workflows first.
_DESCRIBE_RETRIES = 3

# How often the ledger is read if it changes between two of its pages.
_LEDGER_READS = 10
_LEDGER_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class LiveFleet:
    """The fleet with the manifests of its objects.

    Objects that are being deleted or have no accepted spec are left out.
    """

    fleet: Fleet
    classes: Mapping[str, Tree]
    clusters: Mapping[str, Tree]
    deployments: Mapping[Owner, Tree]
    caches: Mapping[Owner, Tree]
    # The replica count of the last apply, if it is known. The deployment may have been
    # scaled since.
    applied: Mapping[Owner, int] = field(default_factory=dict)
    # The cloud objects by cluster name, for the requested clusters that the control
    # plane created.
    inventories: Mapping[str, Sequence[Tree]] = field(default_factory=dict)

    @property
    def views(self) -> dict[Owner, DeploymentView]:
        """Return every deployment as the scheduler sees it, by namespace and name.

        The order of arrival is not known.
        """
        return {
            owner: self.view(self.deployments[owner])
            for owner in sorted(self.deployments)
        }

    def view(
        self, tree: Tree, caches: Mapping[Owner, Tree] | None = None
    ) -> DeploymentView:
        """Return one deployment as the scheduler sees it.

        `caches` take precedence over those of the fleet.
        """
        owners = caches_of(tree)
        found = [
            (caches or {}).get(owner)
            or self.caches.get(owner)
            or {"name": owner[1], "state": "Absent"}
            for owner in owners
        ]
        return deployment_view(tree, combined_cache(found))


async def read_live(
    plane: ControlPlane,
    written: Collection[Owner] = (),
    at_clouds: Collection[str] = (),
) -> LiveFleet:
    """Read the whole fleet.

    `written` are deployments in files to apply. `at_clouds` are the clusters whose
    cloud objects are read. Raise `NoAnswer` with the names of all objects that do not
    answer, or `Unreachable`.
    """
    classes, clusters, deployments, ledger = await asyncio.gather(
        _list_all(plane, "InferenceClass"),
        _list_all(plane, "InferenceCluster"),
        _list_all(plane, "ModelDeployment"),
        _ledger(plane),
    )
    accepted = _accepted(seen.tree for seen in deployments)
    caches: set[Owner] = set()
    for tree in accepted.values():
        caches.update(caches_of(tree))
    found = LiveFleet(
        await _without_clusters(plane),
        classes={seen.target.name: seen.tree for seen in classes},
        clusters=await _with_capacities(plane, [seen.tree for seen in clusters]),
        deployments=accepted,
        caches=await _caches(plane, caches),
        inventories=await read_inventories(
            plane, [seen.tree for seen in clusters if seen.target.name in at_clouds]
        ),
        applied=await _applied(plane, accepted.keys() & set(written)),
    )
    _assemble(found, ledger, await _ready_replicas(plane))
    return found


async def read_known(
    plane: ControlPlane, objects: Mapping[str, Mapping[Owner, Tree]]
) -> LiveFleet:
    """Return the live fleet, with `objects` by kind that a front has read already.

    Only the scheduler is asked, and clusters with a capacity adapter. The objects of
    cluster-scoped kinds have an empty namespace. Raise `NoAnswer` or `Unreachable`.
    """
    ledger = await _ledger(plane)
    ready = {
        owner: condition(tree, "Ready").get("status") == "True"
        for owner, tree in objects["ModelReplica"].items()
    }
    clusters = [
        tree for tree in objects["InferenceCluster"].values() if tree.get("spec")
    ]
    found = LiveFleet(
        await _without_clusters(plane),
        classes={name: tree for (_, name), tree in objects["InferenceClass"].items()},
        clusters=await _with_capacities(plane, clusters),
        deployments=_accepted(objects["ModelDeployment"].values()),
        caches=objects["ModelCache"],
    )
    # It takes a moment in a large fleet, and a front has other requests.
    await asyncio.to_thread(_assemble, found, ledger, ready)
    return found


def _assemble(
    live: LiveFleet,
    ledger: tuple[list[LedgerEntry], dict[str, Any]],
    ready: Mapping[Owner, bool],
) -> None:
    """Add clusters and the ledger to the fleet of a live fleet."""
    fleet, (entries, state) = live.fleet, ledger
    fleet.class_names = frozenset(live.classes)
    for tree in live.clusters.values():
        fleet.put_cluster(cluster_view(tree), now_ms())
    restore_decision_state(fleet, state)
    for entry in entries:
        fleet.put_replica(entry)
    # The scheduler learns readiness only from the next request of the deployment.
    for entry in entries:
        is_ready = ready.get((entry.namespace, entry.name))
        if entry.state != reasons.RELEASING and is_ready is not None:
            fleet.observe(entry.uid, ready=is_ready, serving=is_ready)


def _accepted(trees: Iterable[Tree]) -> dict[Owner, Tree]:
    return {
        (tree["metadata"].get("namespace") or "default", tree["metadata"]["name"]): tree
        for tree in trees
        if tree.get("spec") and not deleting(tree)
    }


def caches_of(tree: Tree) -> list[Owner]:
    """Return namespace and name of every cache that a deployment names."""
    namespace = tree["metadata"].get("namespace") or "default"
    return [
        (namespace, name)
        for name in referenced_caches(tree["spec"]["template"]["spec"])
    ]


async def _list_all(plane: ControlPlane, kind: str) -> Sequence[ListedObject]:
    """Return all objects of a kind, with retries for slow ones.

    Raise `NoAnswer` if some never answer.
    """
    found = await plane.list(BY_KIND[kind], None)
    for _ in range(_DESCRIBE_RETRIES):
        if all(seen.answered for seen in found):
            return found
        again = await asyncio.gather(*(_described_again(plane, seen) for seen in found))
        found = [one for one in again if one]
    silent = [seen.target.title for seen in found if not seen.answered]
    if silent:
        raise NoAnswer(
            "the fleet cannot be read: some objects do not answer",
            details=silent,
            next_step=await plane.failures.next_step_of_silence(),
        )
    return found


async def _described_again(
    plane: ControlPlane, seen: ListedObject
) -> ListedObject | None:
    if seen.answered:
        return seen
    try:
        return ListedObject(seen.target, await plane.describe(seen.target))
    except NoAnswer:
        return seen
    except NotFound:
        return None


async def _with_capacities(
    plane: ControlPlane, clusters: Sequence[Tree]
) -> dict[str, Tree]:
    found = await asyncio.gather(*(_with_capacity(plane, tree) for tree in clusters))
    return {tree["metadata"]["name"]: tree for tree in found}


async def _with_capacity(plane: ControlPlane, tree: Tree) -> Tree:
    """Add the capacity that a cluster's adapter reports, if it has one.

    The scheduler uses this capacity, but `describe` does not show it.
    """
    adapter = (tree["metadata"].get("annotations") or {}).get(
        labels.CAPACITY_ADAPTER, "none"
    )
    if adapter == "none":
        return tree
    target = Target(BY_KIND["InferenceCluster"], "", tree["metadata"]["name"])
    try:
        account: dict[str, Any] = await plane.query(target, "account")
    except NotFound:
        return tree  # it has just been removed
    capacity = with_plain_admission(account["manifest"])["status"].get("capacity")
    if not capacity:
        return tree
    return {**tree, "status": {**(tree.get("status") or {}), "capacity": capacity}}


async def _ledger(plane: ControlPlane) -> tuple[list[LedgerEntry], dict[str, Any]]:
    """Read the whole ledger, and the other state of decisions.

    Raise `NoAnswer` if it changes during every attempt.
    """
    for attempt in range(_LEDGER_READS):
        if attempt:
            await asyncio.sleep(_LEDGER_PAUSE_SECONDS)
        if not await _knows_replicas(plane):
            continue
        entries: list[LedgerEntry] = []
        state: dict[str, Any] = {}
        versions: set[int] = set()
        complete = True
        after = ""
        while True:
            try:
                page: dict[str, Any] = await plane.query(
                    SCHEDULER, "ledger_page", after
                )
            except NotFound:
                return [], {}  # the first request starts the scheduler
            entries += unpack_rows(unpack(page["entries"]))
            # A worker of an older release returns no state, and does not say whether
            # its ledger is complete.
            state |= unpack(page.get("state", "")) or {}
            complete = complete and page.get("complete", True)
            versions.add(page["version"])
            after = page["after"]
            if not after:
                break
        # Pages of different versions do not add up: a replica that moved in between
        # would count twice or not at all.
        if len(versions) == 1 and complete:
            return entries, state
    raise NoAnswer(
        "the scheduler's ledger changed during every read, or is being rebuilt",
        next_step="try again when fewer changes are under way",
    )


async def _knows_replicas(plane: ControlPlane) -> bool:
    """Whether the scheduler's ledger has all replicas.

    A scheduler that does not run is started, and rebuilds its ledger.
    """
    try:
        answer: dict[str, Any] = await plane.query(SCHEDULER, "describe")
    except NotFound:
        async for _ in plane.rows(visibility_query(["ModelReplica"])):
            # as every program that signals the scheduler does
            await plane.start_scheduler()
            return False
        return True
    return not answer["status"].get("rebuilding")


async def read_inventories(
    plane: ControlPlane, clusters: Sequence[Tree]
) -> dict[str, Sequence[Tree]]:
    """Read the cloud objects of clusters by name. Raise `NoAnswer` or `Unreachable`."""
    return {
        tree["metadata"]["name"]: await _inventory(plane, tree)
        for tree in clusters
        if tree.get("spec")
    }


async def _inventory(plane: ControlPlane, cluster: Tree) -> Sequence[Tree]:
    """Read the cloud objects of a cluster.

    A cluster whose creation has not begun has none. Raise `NoAnswer` or `Unreachable`.
    """
    metadata = cluster["metadata"]
    try:
        target = CloudTarget(
            BY_KIND["InferenceCluster"], "", metadata["name"], metadata["uid"]
        )
        rows: Sequence[Tree] = await plane.query(target, "inventory")
    except NotFound:
        return ()
    return rows


async def _without_clusters(plane: ControlPlane) -> Fleet:
    """Return an empty fleet with the scheduler's policy.

    Call it after the ledger was read: a scheduler that was restarted has its policy
    again once its ledger is complete.
    """
    try:
        answer: dict[str, Any] = await plane.query(SCHEDULER, "policy")
    except NotFound:
        return Fleet(read_policy({}))
    return Fleet(read_policy(answer["policy"]))


async def _ready_replicas(plane: ControlPlane) -> dict[Owner, bool]:
    found: dict[Owner, bool] = {}
    async for row in plane.rows(visibility_query(["ModelReplica"])):
        attributes = row.typed_search_attributes
        owner = (attributes.get(NAMESPACE) or "", attributes.get(NAME) or "")
        found[owner] = attributes.get(READY) == "True"
    return found


async def _applied(plane: ControlPlane, owners: set[Owner]) -> dict[Owner, int]:
    wanted = sorted(owners)
    targets = [Target.of(BY_KIND["ModelDeployment"], *owner) for owner in wanted]
    found = await asyncio.gather(
        *(plane.query(target, "applied_replicas") for target in targets)
    )
    return {
        owner: count
        for owner, count in zip(wanted, found, strict=True)
        if count is not None
    }


async def _caches(plane: ControlPlane, owners: set[Owner]) -> dict[Owner, Tree]:
    wanted = sorted(owners)
    found = await asyncio.gather(
        *(plane.find(Target.of(BY_KIND["ModelCache"], *owner)) for owner in wanted)
    )
    return {
        owner: tree
        for owner, tree in zip(wanted, found, strict=True)
        if tree is not None
    }
