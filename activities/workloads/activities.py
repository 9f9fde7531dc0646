"""Apply a replica on its cluster, prune obsolete objects, and delete the replica.

Every activity is idempotent and may be killed between any two requests. It reads the
objects on the cluster before it changes them, and finds objects of an attempt whose
result was lost by their labels. Rendering happens in the activity, so that manifests
never enter a workflow history.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from temporalio import activity

from activities.caller import caller_of, check_caller
from activities.cluster_objects import kinds
from activities.cluster_objects.answers import reading
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    ClusterPool,
    Json,
    ObjectId,
)
from activities.cluster_objects.deletion import Deleter
from activities.cluster_objects.namespaces import ensure_namespace
from activities.cluster_objects.ownership import conflict
from activities.cluster_objects.pod_security import check_pod_security
from activities.heartbeat import heartbeating
from activities.observe.digest import content_digest, overwritten_fields
from activities.render.inputs.settings import RenderSettings, workload_namespace
from activities.render.objects.inventory_keys import ENGINE_PREFIX
from activities.render.objects.manifest import RenderedObject
from activities.render.objects.rendered import Rendered, RenderedEngine
from activities.render.routing.routes import POOL
from activities.secrets.shared_copies import release_all, write_copy
from activities.secrets.store import SecretReader
from activities.workloads.copies import copy_conflicts, is_copy, needed_copies
from activities.workloads.found_objects import with_found, with_found_copies
from activities.workloads.inputs import Prepared, prepare
from activities.workloads.pending import (
    Applying,
    Plan,
    StoredPods,
    plan_apply,
    template_hashes,
)
from activities.workloads.teardown_steps import run_step
from api_types import labels, names
from api_types.errors import (
    CredentialsInvalid,
    NameConflict,
    PermissionDenied,
    StillThere,
    TransientError,
)
from api_types.messages.cluster_work import (
    Applied,
    AppliedEngine,
    AppliedObject,
    ApplyReplica,
    PruneResult,
    RunTeardownStep,
    TeardownStepResult,
)
from api_types.setting_types import AdoptRenderer

_KIND = "ModelReplica"
_READS_AT_ONCE = 8
# The time limit for replaced pods to end. After it, the error names the remaining
# objects.
_REPLACE_WITHIN = timedelta(seconds=40)
_NAMES_MAX = 5
_WORKLOADS = (kinds.DEPLOYMENT, kinds.LEADER_WORKER_SET)


@dataclass(frozen=True)
class WorkloadActivities:
    """Applies and deletes the objects of ModelReplicas on their clusters.

    `force_after` is the time after which pods that do not end are deleted without a
    grace period. None disables this. `adopt_renderer` is the setting
    `workloads.adoptRenderer`; `renderer` is described at `ClusterFacts`.
    """

    clusters: ClusterPool
    store: SecretReader
    settings: RenderSettings
    force_after: timedelta | None = None
    adopt_renderer: AdoptRenderer = "OnRestart"
    renderer: str = ""

    @activity.defn
    async def apply_replica(self, order: ApplyReplica) -> Applied:
        """Render and apply one replica, without pruning.

        Objects that are already as rendered are not applied. In the following cases
        nothing is applied:

        - InvalidInput or Unsupported: the replica cannot be rendered (the reason is
          the error's first detail), or the cluster rejects it.
        - CredentialsInvalid: a Secret is missing.
        - PermissionDenied: the namespace on the cluster belongs to another owner or
          does not admit the privileges of the pods.
        - NameConflict: an object has another owner.
        - StillThere: an object that must be replaced is not deleted in time.
        """
        check_caller(_KIND, order.namespace, order.name)
        cluster = await self.clusters.at(order.connection)
        async with heartbeating() as report, cluster.applying():
            prepared = await prepare(cluster, self.store, order, self.settings)
            rendered = prepared.rendered
            order = await _with_unlisted(cluster, order, rendered)
            deleter = Deleter(cluster, order.uid, report, self.force_after)
            rendered_ids = [ObjectId.of(item.manifest) for item in rendered.objects]
            found = await _read(cluster, [*prepared.needed.targets, *rendered_ids])
            _check_conflicts(order, prepared, found)
            # Create namespaces before anything is deleted, even if all objects exist: a
            # new pod template may reference other Secrets of the namespace.
            await self._ensure_namespaces(cluster, order, found)
            plan = await self._plan(cluster, order, rendered, found)
            await check_pod_security(cluster, (item.manifest for item in plan.items))
            replaced = await _delete_replaced(deleter, order, rendered, found, plan)
            if replaced:
                # Check the namespace again: it may have been deleted with the objects,
                # and another tenant may have created a namespace of the same name.
                await self._ensure_namespaces(cluster, order, found)
            inventory, changed = await self._write_copies(cluster, order, prepared)
            known = {entry.identity: entry for entry in order.inventory}
            total = len(prepared.needed.copies) + len(plan.items)
            overwritten: list[str] = []
            for item in plan.items:
                target = ObjectId.of(item.manifest)
                entry = known.get(target.identity)
                applied_item = await _apply_item(cluster, item, found[target], entry)
                inventory.append(applied_item.entry)
                if applied_item.is_changed:
                    changed.append(item.key)
                overwritten += applied_item.overwritten
                report({"applied": len(inventory), "of": total})
        done = {entry.identity for entry in inventory}
        done |= {target.identity for target in replaced}
        # Nobody repairs an obsolete object. It would not be pruned while its replica
        # tries to repair it, and is not ready.
        obsolete = [
            entry.model_copy(update={"digest": ""})
            for entry in order.inventory
            if entry.identity not in done
        ]
        applied = _applied(prepared, plan, [*inventory, *obsolete], changed)
        return applied.model_copy(
            update={
                "renderer": self.renderer,
                "overwritten": overwritten[:_NAMES_MAX],
                "has_obsolete": bool(obsolete),
            }
        )

    async def _plan(
        self,
        cluster: ClusterApi,
        order: ApplyReplica,
        rendered: Rendered,
        found: dict[ObjectId, Json | None],
    ) -> Plan:
        if order.adoption:
            return Plan(rendered.objects)
        recreated = frozenset(
            engine.workload_name
            for engine in rendered.engines
            if engine.recreate_on_change
        )
        plan = await plan_apply(
            cluster,
            Applying(
                rendered.objects, found, order.inventory, order.generation, recreated
            ),
        )
        return replace(plan, asked=plan.asked or self.adopt_renderer == "Rolling")

    async def _ensure_namespaces(
        self, cluster: ClusterApi, order: ApplyReplica, targets: Iterable[ObjectId]
    ) -> None:
        namespaces = {target.namespace for target in targets if target.namespace}
        for namespace in sorted(namespaces):
            shared = namespace == self.settings.workload_namespace
            await ensure_namespace(
                cluster,
                namespace,
                f"{_KIND} {order.namespace}/{order.name}",
                shared=shared,
            )

    async def _write_copies(
        self, cluster: ClusterApi, order: ApplyReplica, prepared: Prepared
    ) -> tuple[list[AppliedObject], list[str]]:
        inventory, changed = list(prepared.needed.kept), []
        for copy in prepared.needed.copies:
            if await write_copy(
                cluster, self.store, copy, prepared.rendered.workload_name, order.uid
            ):
                changed.append(copy.inventory_key)
            version = prepared.needed.versions.get(copy.inventory_key, "")
            inventory.append(
                AppliedObject(
                    key=copy.inventory_key,
                    id=str(ObjectId.of(copy.manifest)),
                    hash=version,
                )
            )
        return inventory, changed

    @activity.defn
    async def await_copies(self, order: ApplyReplica) -> None:
        """Return when the store has everything that an apply copies.

        Raises TransientError until then, so that Temporal retries.
        """
        check_caller(_KIND, order.namespace, order.name)
        try:
            await needed_copies(self.store, order, self.settings)
        except CredentialsInvalid as missing:
            raise TransientError(missing.message) from missing

    @activity.defn
    async def prune_replica(self, order: ApplyReplica) -> PruneResult:
        """Delete inventory objects that are no longer rendered.

        Returns when they are gone, or after `wait_seconds`. Deletes nothing while
        workloads are held back, because the previous ones keep running. Do not call
        this while pods wait for replacement: they use objects that are no longer
        rendered.

        Raises TransientError if this worker renders differently from the worker that
        applied: the objects that it would not render are in use.
        """
        check_caller(_KIND, order.namespace, order.name)
        if order.renderer not in ("", self.renderer):
            raise TransientError(
                "the last apply was made by a worker of another version or with other "
                "settings"
            )
        cluster = await self.clusters.at(order.connection)
        prepared = await prepare(cluster, self.store, order, self.settings)
        if prepared.rendered.held:
            return PruneResult()
        wanted = {
            ObjectId.of(item.manifest).identity for item in prepared.rendered.objects
        }
        wanted |= {target.identity for target in prepared.needed.targets}
        wanted |= {entry.identity for entry in prepared.needed.kept}
        obsolete = [entry for entry in order.inventory if entry.identity not in wanted]
        async with heartbeating() as report:
            own = [ObjectId.parse(entry.id) for entry in obsolete if not is_copy(entry)]
            within = (
                timedelta(seconds=order.wait_seconds) if order.wait_seconds else None
            )
            _, remaining = await Deleter(
                cluster, order.uid, report, self.force_after
            ).until_gone(own, within)
            shared = [ObjectId.parse(entry.id) for entry in obsolete if is_copy(entry)]
            await release_all(cluster, shared, prepared.rendered.workload_name)
        held = {item.id for item in remaining}
        return PruneResult(
            removed=[entry.id for entry in obsolete if entry.id not in held],
            remaining=remaining,
        )

    @activity.defn
    async def teardown_replica_step(self, order: RunTeardownStep) -> TeardownStepResult:
        """Run one teardown step: delete its objects in order.

        Returns when they are gone, or after `wait_seconds`. Objects of other owners are
        kept and listed in the result. A kind that the cluster does not serve has no
        objects.
        """
        # The order identifies the replica by its workload name.
        replica = caller_of(_KIND)
        check_caller(_KIND, order.namespace)
        if order.workload_name != names.workload_name(*replica):
            raise PermissionDenied(
                f"{_KIND} {'/'.join(replica)} may not delete objects of {order.workload_name}"
            )
        cluster = await self.clusters.at(order.connection)
        if not order.workload_namespace:
            namespace = workload_namespace(order.namespace, self.settings)
            order = order.model_copy(update={"workload_namespace": namespace})
        async with heartbeating() as report:
            return await run_step(
                Deleter(cluster, order.uid, report, self.force_after), order
            )


async def _with_unlisted(
    cluster: ClusterApi, order: ApplyReplica, rendered: Rendered
) -> ApplyReplica:
    """Add objects that interrupted applies may have left to the inventory."""
    if order.search:
        order = await with_found(cluster, order)
    if order.search or activity.info().attempt > 1:
        order = await with_found_copies(
            cluster, order, rendered.namespace, rendered.workload_name
        )
    return order


def _check_conflicts(
    order: ApplyReplica, prepared: Prepared, found: dict[ObjectId, Json | None]
) -> None:
    """Raise NameConflict if an object to apply exists and has another owner."""
    conflicts = copy_conflicts(prepared.needed, found)
    for item in prepared.rendered.objects:
        live = found[ObjectId.of(item.manifest)]
        reason = live and conflict(live, order.uid)
        if reason:
            conflicts.append(reason)
    if conflicts:
        raise NameConflict(
            f"cluster {order.cluster}: {'; '.join(conflicts)}; "
            "delete it there or choose another name"
        )


class _AppliedItem(NamedTuple):
    """The result of applying one item. `overwritten` names fields of other managers."""

    entry: AppliedObject
    is_changed: bool
    overwritten: list[str]


async def _apply_item(
    cluster: ClusterApi,
    item: RenderedObject,
    live: Json | None,
    known: AppliedObject | None,
) -> _AppliedItem:
    """Apply an item, unless the stored object is current.

    `live` is the stored object, and `known` its inventory entry.
    """
    target = ObjectId.of(item.manifest)
    overwritten: list[str] = []
    with reading(target):
        if live and _is_current(item, live, known):
            stored = live
        else:
            stored = await cluster.apply(item.manifest)
        digest = content_digest(stored)
        is_changed = not live or digest != content_digest(live)
        if live and known is not None:
            overwritten = [
                f"{target.kind}/{target.name}: {field}"
                for field in overwritten_fields(live, stored)
            ]
    entry = AppliedObject(key=item.key, id=str(target), hash=item.hash, digest=digest)
    return _AppliedItem(entry, is_changed, overwritten)


async def _delete_replaced(
    deleter: Deleter,
    order: ApplyReplica,
    rendered: Rendered,
    found: dict[ObjectId, Json | None],
    plan: Plan,
) -> list[ObjectId]:
    """Delete the objects that must be gone before a replacement; return their ids.

    A replacement needs the same GPUs or the same name. The deleted objects are set to
    None in `found`. Raises StillThere if the deletion takes too long.
    """
    wanted = {
        item.key: ObjectId.of(item.manifest)
        for item in rendered.objects
        if item.key not in plan.pending
    }
    replaced = [
        ObjectId.parse(entry.id)
        for entry in order.inventory
        if entry.key.startswith(ENGINE_PREFIX)
        and entry.key in wanted
        and wanted[entry.key].identity != entry.identity
    ]
    # Also wait for objects that are already being deleted: an apply would be lost when
    # the deletion ends.
    replaced += [
        target
        for target, item in found.items()
        if item and item["metadata"].get("deletionTimestamp")
    ]
    recreated = {
        engine.workload_name: (engine.template_hashes, engine.size)
        for engine in rendered.engines
        if (engine.recreate_on_change or engine.name in order.recreated)
        and f"{ENGINE_PREFIX}{engine.name}" not in plan.pending
    }
    replaced += [
        target
        for target, item in found.items()
        if item
        and target.kind in _WORKLOADS
        and target.name in recreated
        and _pods_of(item) != recreated[target.name]
    ]
    _, remaining = await deleter.until_gone(replaced, _REPLACE_WITHIN)
    if remaining:
        raise StillThere(
            f"cluster {order.cluster}: the apply waits until these objects are deleted: "
            f"{', '.join(map(str, remaining[:_NAMES_MAX]))}"
        )
    found.update(
        dict.fromkeys((target for target in replaced if target in found), None)
    )
    return replaced


async def _read(
    cluster: ClusterApi, targets: Sequence[ObjectId]
) -> dict[ObjectId, Json | None]:
    limit = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(target: ObjectId) -> Json | None:
        async with limit:
            return await cluster.get(target)

    return dict(zip(targets, await asyncio.gather(*map(read, targets)), strict=True))


def _is_current(item: RenderedObject, live: Json, known: AppliedObject | None) -> bool:
    """Return whether an object is rendered as before and its fields are unchanged."""
    if item.create_only:
        return True
    rendered_hash = (live["metadata"].get("annotations") or {}).get(labels.RENDER_HASH)
    return (
        rendered_hash == item.hash
        and known is not None
        and known.digest == content_digest(live)
    )


def _pods_of(workload: Json) -> tuple[tuple[str, ...], int]:
    """Return the hashes of a stored workload's pod templates, and its gang size.

    The size is the number of pods of each copy.
    """
    return template_hashes(workload), workload["spec"].get(
        "leaderWorkerTemplate", {}
    ).get("size", 1)


def _applied_engine(engine: RenderedEngine, plan: Plan) -> AppliedEngine:
    stored = plan.pending.get(f"{ENGINE_PREFIX}{engine.name}")
    pods = stored or StoredPods(
        engine.kind, engine.workload_name, engine.template_hashes
    )
    return AppliedEngine(
        name=engine.name,
        kind=pods.kind,
        workload_name=pods.name,
        copies=engine.copies,
        size=engine.size,
        template_hash=pods.template_hashes[0],
        template_hashes=list(pods.template_hashes),
        kv_block_size=engine.kv_block_size,
        kv_block_size_source=engine.kv_block_size_source,
    )


def _applied(
    prepared: Prepared, plan: Plan, inventory: list[AppliedObject], changed: list[str]
) -> Applied:
    rendered = prepared.rendered
    return Applied(
        hash=rendered.hash,
        workload_name=rendered.workload_name,
        workload_namespace=rendered.namespace,
        inventory=inventory,
        engines=[_applied_engine(engine, plan) for engine in rendered.engines],
        routing_surface=rendered.routing.surface if rendered.routing else "",
        connector=rendered.routing.connector if rendered.routing else "",
        decode_port=(rendered.routing.decode_port or 0) if rendered.routing else 0,
        picker_guards=rendered.routing is not None and rendered.routing.surface == POOL,
        held=rendered.held,
        changed=changed,
        pending=sorted(plan.pending),
        pending_causes=list(plan.causes),
        adopting=plan.asked and bool(plan.pending),
        inputs_hash=rendered.inputs_hash,
        warnings=[*prepared.warnings, *plan.warnings],
    )
