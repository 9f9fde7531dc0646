"""Put a replica on its cluster, keep it there, and take it away again.

Every activity may be done twice, and may be killed between any two requests: what is on the cluster is read before it is changed, and what
a lost answer did is found by its marks. Rendering is pure and happens in here, so that manifests never travel through a history.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby

from temporalio import activity

from activities import kinds
from activities.cluster_api import ClusterApi, ClusterPool, Json, Kind, ObjectId, Selection
from activities.departure import Leaver, list_served
from activities.heartbeat import heartbeating
from activities.observe.digest import content_digest
from activities.ownership import conflict, owner_of
from activities.render import teardown
from activities.render.facts import ClusterFacts as RenderFacts
from activities.render.facts import InvalidFacts, ReplicaInput
from activities.render.findings import InvalidSpec, NotRenderable
from activities.render.rendered import Rendered
from activities.render.replica import Item, render_replica
from activities.render.settings import RenderSettings
from api_types import labels
from api_types.errors import InvalidInput, NameConflict, Unsupported
from api_types.messages import Applied, AppliedEngine, AppliedObject, ReplicaOrder, StepDone, TeardownStep

_WORKLOAD_KEY = "model-serving-"
_READS_AT_ONCE = 8
# The component label that each step of a teardown takes; what an inventory does not know of is found by it.
_COMPONENTS = {3: "routing", 4: "routing", 5: "epp", 6: "monitoring", 7: "engine", 8: "gang", 9: "device-claim"}


class WorkloadActivities:
    """Everything a ModelReplica does on its cluster. `force_after`: when pods that do not end are deleted without grace (None: never)."""

    def __init__(self, clusters: ClusterPool, settings: RenderSettings, force_after: timedelta | None = None) -> None:
        self._clusters = clusters
        self._settings = settings
        self._force_after = force_after

    @activity.defn
    async def apply_replica(self, order: ReplicaOrder) -> Applied:
        """Render and apply one replica; what is as it should be is left alone, and nothing is pruned.

        Raises InvalidInput or Unsupported if it cannot be rendered (the reason is the error's first detail) or is refused by the cluster,
        NameConflict if an object belongs to somebody else (nothing is applied then).
        """
        cluster = await self._clusters.at(order.connection)
        rendered = _render(order, self._settings)
        async with heartbeating() as tell:
            leaver = Leaver(cluster, order.uid, tell, self._force_after)
            found = await _read(cluster, [ObjectId.of(item.manifest) for item in rendered.objects])
            conflicts = [reason for item in found.values() if item and (reason := conflict(item, order.uid))]
            if conflicts:
                raise NameConflict(f"cluster {order.cluster}: {'; '.join(conflicts)}; delete it there or choose another name")
            left = await _make_room(leaver, order, rendered, found)
            await _ensure_namespaces(cluster, order, found)
            known = {entry.id: entry for entry in order.inventory}
            inventory, changed = [], []
            for item in rendered.objects:
                target = ObjectId.of(item.manifest)
                live = found[target]
                stored = live if live and _is_current(item, live, known.get(str(target))) else await cluster.apply(item.manifest)
                digest = content_digest(stored)
                if not live or digest != content_digest(live):
                    changed.append(item.key)
                inventory.append(AppliedObject(key=item.key, id=str(target), hash=item.hash, digest=digest))
                tell({"applied": len(inventory), "of": len(rendered.objects)})
        done = {entry.id for entry in inventory} | {str(target) for target in left}
        return _applied(rendered, [*inventory, *(entry for entry in order.inventory if entry.id not in done)], changed)

    @activity.defn
    async def prune_replica(self, order: ReplicaOrder) -> list[str]:
        """Delete what the inventory has and the present render has not. Gives the ids that are gone, or belong to somebody else."""
        cluster = await self._clusters.at(order.connection)
        wanted = {str(ObjectId.of(item.manifest)) for item in _render(order, self._settings).objects}
        leaving = [entry.id for entry in order.inventory if entry.id not in wanted]
        async with heartbeating() as tell:
            await Leaver(cluster, order.uid, tell, self._force_after).until_gone([ObjectId.parse(text) for text in leaving])
        return leaving

    @activity.defn
    async def teardown_replica_step(self, order: TeardownStep) -> StepDone:
        """Do one step of the teardown: delete in order, and come back when nothing of it is left.

        Objects of somebody else are left alone and named in the answer; kinds that are not served have no objects.
        """
        cluster = await self._clusters.at(order.connection)
        async with heartbeating() as tell:
            leaver = Leaver(cluster, order.uid, tell, self._force_after)
            if order.number == teardown.SWEEP:
                return StepDone(skipped=await _sweep(leaver, order))
            return StepDone(skipped=await _step(leaver, order))


async def _step(leaver: Leaver, order: TeardownStep) -> list[str]:
    """Delete what belongs to one step: known from the inventory, or found by its marks where the inventory was lost.

    What an interrupted update made beside the inventory is left to the sweep; to look for it in every step would cost each teardown as
    many lists as there are kinds.
    """
    step = next(step for step in teardown.STEPS if step.number == order.number)
    targets = {ObjectId.parse(entry.id): None for entry in reversed(order.inventory) if teardown.step_of(entry.key) is step}
    for kind in [] if order.inventory else kinds.resolve_all(step.kinds, await leaver.cluster.resources()):
        for item in await _marked(leaver.cluster, kind, order):
            if item["metadata"]["labels"].get(labels.COMPONENT) == _COMPONENTS.get(step.number):
                targets[ObjectId.of(item)] = None
    rank = {kind: position for position, (_, kind) in enumerate(step.kinds)}
    ordered = sorted(targets, key=lambda target: rank.get(target.kind.kind, len(rank)))
    skipped: list[str] = []
    # Engines end together: nobody waits for one to free the other's nodes.
    for _, group in groupby(ordered, key=lambda target: None if step.wait_kinds else target.kind):
        skipped += await leaver.until_gone(list(group))
    return skipped


async def _sweep(leaver: Leaver, order: TeardownStep) -> list[str]:
    """Delete everything with the replica's mark, of every kind that we know, until a whole look finds nothing more."""
    served = await leaver.cluster.resources(refresh=True)
    while True:
        found = [item for kind in kinds.ours(served) for item in await _marked(leaver.cluster, kind, order)]
        mine = [ObjectId.of(item) for item in found if owner_of(item).uid == order.uid]
        if not mine:
            return [conflict(item, order.uid) for item in found]
        await leaver.until_gone(mine)


async def _make_room(leaver: Leaver, order: ReplicaOrder, rendered: Rendered, found: dict[ObjectId, Json | None]) -> list[ObjectId]:
    """Wait for what must be gone before its successor is made, because both would want the same GPUs or the same name.

    Gives what is gone, and notes it in `found`.
    """
    wanted = {item.key: ObjectId.of(item.manifest) for item in rendered.objects}
    leaving = [
        ObjectId.parse(entry.id)
        for entry in order.inventory
        if entry.key.startswith(_WORKLOAD_KEY) and entry.key in wanted and str(wanted[entry.key]) != entry.id
    ]
    # Somebody deleted these; applying now would only be undone when the deletion ends.
    leaving += [target for target, item in found.items() if item and item["metadata"].get("deletionTimestamp")]
    recreated = {engine.workload_name: engine.template_hashes for engine in rendered.engines if engine.recreate_on_change}
    leaving += [
        target
        for target, item in found.items()
        if item and target.kind == kinds.LEADER_WORKER_SET and target.name in recreated and _hashes(item) != recreated[target.name]
    ]
    await leaver.until_gone(leaving)
    found.update(dict.fromkeys((target for target in leaving if target in found), None))
    return leaving


def _render(order: ReplicaOrder, settings: RenderSettings) -> Rendered:
    facts = order.facts
    try:
        return render_replica(
            ReplicaInput(
                namespace=order.namespace,
                name=order.name,
                uid=order.uid,
                generation=order.generation,
                deployment=order.deployment,
                cluster=order.cluster,
                index=order.index,
                spec=order.spec,
            ),
            RenderFacts(
                name=order.cluster,
                kubernetes_version=facts.kubernetes_version,
                dra_version=facts.dra_version,
                routing=facts.routing,
                scheduler_type=facts.scheduler_type,
                mesh_provider=facts.mesh_provider,
                storage_class_name=facts.storage_class_name,
                gateway_address=facts.gateway_address,
                apis=frozenset(facts.apis),
            ),
            settings,
        )
    except InvalidSpec as error:
        raise InvalidInput(str(error), error.reason) from error
    except NotRenderable as error:
        raise Unsupported(str(error), error.reason) from error
    except InvalidFacts as error:
        raise InvalidInput(str(error), InvalidSpec.reason) from error


async def _read(cluster: ClusterApi, targets: Sequence[ObjectId]) -> dict[ObjectId, Json | None]:
    gate = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(target: ObjectId) -> Json | None:
        async with gate:
            return await cluster.get(target)

    return dict(zip(targets, await asyncio.gather(*map(read, targets)), strict=True))


async def _ensure_namespaces(cluster: ClusterApi, order: ReplicaOrder, found: Mapping[ObjectId, Json | None]) -> None:
    """Make the namespaces of what is about to be made. They are left behind, so they carry none of our labels."""
    for namespace in sorted({target.namespace for target, item in found.items() if target.namespace and not item}):
        if await cluster.get(ObjectId(kinds.NAMESPACE, "", namespace)) is None:
            metadata = {"name": namespace, "annotations": {labels.CREATED_FOR: f"ModelReplica {order.namespace}/{order.name}"}}
            await cluster.create({"apiVersion": kinds.NAMESPACE.api_version, "kind": kinds.NAMESPACE.kind, "metadata": metadata})


def _is_current(item: Item, live: Json, known: AppliedObject | None) -> bool:
    """Tell whether an object needs no apply: rendered as before, and nobody has touched what is ours."""
    if item.create_only:
        return True
    stamped = (live["metadata"].get("annotations") or {}).get(labels.RENDER_HASH)
    return stamped == item.hash and known is not None and known.digest == content_digest(live)


async def _marked(cluster: ClusterApi, kind: Kind, order: TeardownStep) -> list[Json]:
    return await list_served(cluster, Selection(kind, labels=f"{labels.REPLICA}={order.workload_name}", metadata_only=True))


def _hashes(leader_worker_set: Json) -> tuple[str, ...]:
    template = leader_worker_set["spec"]["leaderWorkerTemplate"]
    members = (template.get("leaderTemplate"), template.get("workerTemplate"))
    return tuple((member["metadata"].get("annotations") or {}).get(labels.TEMPLATE_HASH, "") for member in members if member)


def _applied(rendered: Rendered, inventory: list[AppliedObject], changed: list[str]) -> Applied:
    return Applied(
        hash=rendered.hash,
        workload_name=rendered.workload_name,
        workload_namespace=rendered.namespace,
        inventory=inventory,
        engines=[
            AppliedEngine(
                name=engine.name,
                kind=engine.kind,
                workload_name=engine.workload_name,
                copies=engine.copies,
                size=engine.size,
                template_hash=engine.template_hash,
                template_hashes=list(engine.template_hashes),
                kv_block_size=engine.kv_block_size,
                kv_block_size_source=engine.kv_block_size_source,
            )
            for engine in rendered.engines
        ],
        routing_surface=rendered.routing.surface if rendered.routing else "",
        held=rendered.held,
        changed=changed,
        warnings=list(rendered.warnings),
    )
