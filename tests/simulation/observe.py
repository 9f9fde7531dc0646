"""Read one moment of a running world, with facts about earlier moments."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from api_types import labels, names
from api_types.limits import ROUTE_BACKENDS_MAX
from api_types.messages.clouds import CloudObjectState
from api_types.messages.signals import INFERENCE_GATEWAY
from scheduler import decide_and_explain
from scheduler.hardware.template import charges
from scheduler.model.policy import WHOLE_NODES
from tests.simulation.parts import CONTROL, ObjectView
from tests.simulation.runs import COMPLETED, TERMINATED, Execution
from tests.simulation.snapshot import (
    Pool,
    SeenCluster,
    SeenCopy,
    SeenDeployment,
    SeenEntry,
    SeenObject,
    SeenPlacement,
    SeenPod,
    SeenPool,
    SeenReplica,
    SeenRoute,
    SeenWorkflow,
    Snapshot,
)
from workflows.endpoint_directory.directory import selects
from workflows.entity.conditions import condition_of, is_true, waiting_for
from workflows.entity.entity import Entity
from workflows.fleet_scheduler.decide_activity import schedule_request

if TYPE_CHECKING:
    from tests.simulation.world import World

_FORCED = frozenset({"skipped", "abandoned"})
REPORTS_ARRIVE_WITHIN = 600.0
"""Seconds in which a report of a pool's size reaches the scheduler, with lost workers."""


class Observer:
    """Observes a world.

    Attributes:
      ended: the last state of each run that is in no cache any more.
      replaced: each object that ended by itself before an object with its name started.
    """

    def __init__(self, world: "World") -> None:
        self.world = world
        self.ended: dict[str, SeenWorkflow] = {}
        self.replaced: dict[str, SeenWorkflow] = {}
        self._nodes: dict[Pool, int] = {}
        self._accounting: Mapping[str, bool] = {}
        self._excused: dict[Pool, float] = {}
        self._skipped: set[str] = set()
        self._orphaned: set[str] = set()
        self._secrets: set[str] = set()
        self._read_payloads: dict[str, int] = {}
        self._read_logs = 0

    def look(self, *, whole: bool = False, texts: bool = False) -> Snapshot:
        """Read the present moment. `whole`: also the slow parts; `texts`: also all new text."""
        objects = {
            execution.run.workflow_id: execution.run.workflow
            for execution in self.world.server.executions.values()
            if execution.run.is_open
        }
        scheduler = objects.get(names.FLEET_SCHEDULER_ID)
        parts = self.world.parts
        pods = tuple(
            SeenPod(
                each.cluster,
                each.pool,
                each.owner,
                each.devices,
                each.node,
                each.ready,
                each.deleting,
                each.ending,
            )
            for each in parts.pods()
        )
        ledger = tuple(_entries(scheduler))
        replicas = tuple(_replicas(objects, self.world))
        self._skipped |= {each.uid for each in replicas if each.skipped}
        seen = Snapshot(
            seconds=self.world.clock.seconds(),
            broken=frozenset(_broken(objects, parts)),
            workflows=dict(self._workflows()),
            replaced=self._replaced(),
            deployments=tuple(_deployments(objects, scheduler, self.world, whole=whole)),
            replicas=replicas,
            ledger=ledger,
            ledger_differences=tuple(scheduler.audit()) if whole and scheduler is not None else (),
            waits=tuple(_waits(scheduler)),
            pods=pods,
            pools=self._pools(scheduler, pods, ledger),
            objects=tuple(
                SeenObject(
                    each.place,
                    each.kind,
                    (each.namespace, each.name),
                    each.owner or _installer(each, objects),
                    each.cache,
                )
                for each in parts.objects()
            ),
            routes=tuple(self._routes(objects)),
            clusters=tuple(_clusters(objects, parts)),
            copies=tuple(_copies(objects, parts)) if whole else (),
        )
        return replace(seen, texts=dict(self._texts()), secrets=self._planted()) if texts else seen

    # Workflows

    def _workflows(self) -> Iterator[tuple[str, SeenWorkflow]]:
        for workflow_id, execution in self.world.server.executions.items():
            run = execution.run
            before = self.ended.get(run.run_id, SeenWorkflow(workflow_id, run.kind))
            product = run.workflow or run.ended
            events = sum(each.events for each in execution.runs)
            found = replace(
                _shown(before, product),
                running=run.is_open,
                status=run.status,
                events=events,
                outdated=product is None and (before.outdated or events != before.events),
                uids_before_resets=self._uids_before_resets(execution),
                failures=tuple(failure for each in execution.runs for failure in each.failures),
            )
            self.ended[run.run_id] = found
            yield workflow_id, found

    def _uids_before_resets(self, execution: Execution) -> frozenset[str]:
        bases = [self.ended.get(each) for run in execution.runs for each in run.reset_from]
        return frozenset(base.uid for base in bases if base is not None)

    def _replaced(self) -> tuple[SeenWorkflow, ...]:
        for workflow_id, execution in self.world.server.executions.items():
            for run in execution.runs[:-1]:
                if run.run_id in self.replaced or run.status not in (COMPLETED, TERMINATED):
                    continue
                before = self.ended.get(run.run_id, SeenWorkflow(workflow_id, run.kind))
                last = replace(before, running=False, status=run.status)
                self.replaced[run.run_id] = _shown(last, run.ended)
        return tuple(self.replaced.values())

    def _routes(self, objects: Mapping[str, Any]) -> Iterator[SeenRoute]:
        """Yield the routes; the services that were terminated have orphaned ones for a while."""
        for workflow_id, execution in self.world.server.executions.items():
            if execution.run.kind == "ModelService" and execution.run.status == TERMINATED:
                self._orphaned.add(workflow_id)
        for route in _routes(objects, self.world.parts):
            workflow_id = names.workflow_id("ModelService", *route.service)
            if route.endpoints == route.expected:
                self._orphaned.discard(workflow_id)
            yield replace(route, orphaned=workflow_id in self._orphaned)

    # Pools

    def _pools(
        self, scheduler: Any, pods: Iterable[SeenPod], ledger: Iterable[SeenEntry]
    ) -> Mapping[Pool, SeenPool]:
        """Count nodes, and excuse some pools until all fits again.

        These pools shrank, are counted otherwise, or have pods that somebody made or
        unlabelled by hand, or pods of a replica whose deletion was forced before they ended.
        """
        nodes: dict[Pool, int] = {}
        for node in self.world.parts.nodes():
            pool = (node.cluster, node.pool)
            nodes[pool] = nodes.get(pool, 0) + 1
        by_device, devices = _accounting(scheduler)
        others = self._skipped.union(self.world.parts.owners_of_scaled(), ("",))
        excused = {(pod.cluster, pod.pool) for pod in pods if pod.owner in others}
        excused |= self.world.parts.take_shrunk()
        pools = {*nodes, *self._nodes, *self._excused, *excused}
        for pool in pools:
            gone = pool not in nodes and pool in self._nodes
            if gone or self._by_device(pool) != by_device.get(pool, False):
                excused.add(pool)
        self._excused |= dict.fromkeys(excused, self.world.clock.seconds())
        self._nodes, self._accounting = (
            nodes,
            {"/".join(pool): on for pool, on in by_device.items()},
        )
        found = {
            pool: SeenPool(
                nodes.get(pool, 0),
                devices.get(pool, 8),
                by_device.get(pool, False),
                # Only the scheduler knows how it counts a pool.
                pool in self._excused or pool not in by_device,
            )
            for pool in pools
        }
        if scheduler is not None:
            self._excuse_no_more(found, scheduler, pods, ledger)
        return found

    def _by_device(self, pool: Pool) -> bool:
        return self._accounting.get("/".join(pool), False)

    def _excuse_no_more(
        self,
        pools: Mapping[Pool, SeenPool],
        scheduler: Any,
        pods: Iterable[SeenPod],
        ledger: Iterable[SeenEntry],
    ) -> None:
        """End the excuse of pools whose nodes the scheduler knows and where all fits.

        A pool that grows and shrinks again has its first size while reports of the larger
        size are still on their way.
        """
        charged: dict[Pool, int] = {}
        for entry in ledger:
            for name, count in entry.pools.items():
                charged[entry.cluster, name] = charged.get((entry.cluster, name), 0) + count
        running: dict[Pool, int] = {}
        for pod in pods:
            running[pod.cluster, pod.pool] = running.get((pod.cluster, pod.pool), 0) + 1
        earlier = self.world.clock.seconds() - REPORTS_ARRIVE_WITHIN
        for pool in sorted(pool for pool, since in self._excused.items() if since <= earlier):
            info = scheduler.cache.fleet.clusters.get(pool[0])
            known = {each.name: each.nodes for each in info.view.pools} if info else {}
            most = max(charged.get(pool, 0), running.get(pool, 0))
            if known.get(pool[1]) == pools[pool].nodes and most <= pools[pool].nodes:
                del self._excused[pool]

    # Texts

    def _texts(self) -> Iterator[tuple[str, str]]:
        for execution in self.world.server.executions.values():
            for run in execution.runs:
                read = self._read_payloads.get(run.run_id, 0)
                self._read_payloads[run.run_id] = len(run.payloads)
                new = b"\n".join(run.payloads[read:])
                yield f"the history of {run.workflow_id}", new.decode(errors="replace")
        new_logs, self._read_logs = self.world.logs[self._read_logs :], len(self.world.logs)
        yield "the logs", "\n".join(new_logs)

    def _planted(self) -> frozenset[str]:
        for secret in self.world.parts.secrets.values():
            self._secrets |= {value for value in secret.values() if len(value) > 8}
        return frozenset(self._secrets)


def _shown(before: SeenWorkflow, product: Any) -> SeenWorkflow:
    """Read the status of an object; keep the last known one where it is in no cache."""
    if product is None:
        return before
    state = product.state
    if not isinstance(product, Entity):
        reasons = frozenset(f"event/{event.reason}" for event in getattr(state, "events", ()))
        phase = getattr(state, "phase", "")
        return replace(before, phase=phase, shown=before.shown | reasons)
    phase = product.phase()
    shown = {f"phase/{phase}"}
    shown |= {f"condition/{each.type}={each.status}/{each.reason}" for each in state.conditions}
    shown |= {f"event/{each.reason}" for each in state.events}
    return replace(
        before,
        uid=state.uid,
        phase=phase,
        unsettled="; ".join(waiting_for(state.conditions, deleting=state.deleting)),
        deleting=state.deleting,
        generation=state.generation,
        left_behind=before.left_behind | frozenset(_left_behind(product)),
        shown=before.shown | shown,
    )


def _left_behind(product: Entity[Any]) -> Iterator[str]:
    """Name the left-behind objects that an object lists; a label stands for all of its owner."""
    for item in product.state.left_behind:
        place = "control" if item.location == "control cluster" else item.location
        yield f"{place}/{item.kind}/{item.namespace}/{item.name}"
        if item.kind in ("label", "ModelReplica", "ModelCache", "installation", "volume"):
            yield f"{place}/owner/{product.state.uid}"


# The scheduler


def _entries(scheduler: Any) -> Iterator[SeenEntry]:
    if scheduler is None:
        return
    for entry in scheduler.cache.fleet.entries():
        owner = (entry.namespace, entry.name)
        pools = dict(charges(entry.charged))
        yield SeenEntry(entry.uid, owner, entry.cluster, entry.state, pools)


def _waits(scheduler: Any) -> Iterator[str]:
    if scheduler is None:
        yield "no scheduler runs, or it is in no cache"
        return
    state = scheduler.state
    if not state.is_complete:
        yield "it rebuilds"
    yield from (f"a decision for {owner}" for owner in state.queue)
    yield from (f"the account of {workflow_id}" for workflow_id in state.unresponsive)
    yield from (f"the account of the deployment of {owner}" for owner in state.withheld)


def _accounting(scheduler: Any) -> tuple[dict[Pool, bool], dict[Pool, int]]:
    """Return the pools that are counted in devices, and the devices of a node in each pool."""
    by_device: dict[Pool, bool] = {}
    devices: dict[Pool, int] = {}
    if scheduler is None:
        return by_device, devices
    options = scheduler.cache.fleet.options
    for name, info in scheduler.cache.fleet.clusters.items():
        for pool in info.view.pools:
            rule = options.class_accounting.get(pool.class_name, options.accounting)
            by_device[name, pool.name] = rule != WHOLE_NODES
            devices[name, pool.name] = sum(entry.count for entry in pool.device_set.entries)
    return by_device, devices


def _placeable(scheduler: Any, owner: str, world: "World") -> int:
    """Decide the waiting request of a deployment again: how many replicas it would get now."""
    place = scheduler.state.unplaced.get(owner)
    if place is None or owner in scheduler.state.queue:
        return 0
    now = int(world.clock.now().timestamp() * 1000)
    request = replace(schedule_request(place), dry_run=True)
    (explained,) = decide_and_explain(scheduler.cache.fleet, [request], now, lambda _: False)
    charged = scheduler.cache.fleet.ledger
    return sum(charged.get(placed.uid) is None for placed in explained.decision.placements)


# Deployments and replicas


def _of_kind(objects: Mapping[str, Any], kind: str) -> Iterator[Any]:
    prefix = f"{kind.lower()}/"
    for workflow_id, product in objects.items():
        if workflow_id.startswith(prefix) and product is not None and product.state.uid:
            yield product


def _deployments(
    objects: Mapping[str, Any], scheduler: Any, world: "World", *, whole: bool
) -> Iterator[SeenDeployment]:
    for product in _of_kind(objects, "ModelDeployment"):
        state = product.state
        scheduled = condition_of(state.conditions, "ReplicasScheduled")
        owner = f"{product.namespace}/{product.name}"
        placements = tuple(
            SeenPlacement(
                each.uid,
                each.name,
                each.cluster,
                each.started,
                each.ready,
                each.deletion_reason,
                tuple(each.after),
                each.index,
            )
            for each in state.by_name()
        )
        yield SeenDeployment(
            name=(product.namespace, product.name),
            uid=state.uid,
            deleting=state.deleting,
            was_reset=_was_reset(world, product),
            drains=bool(state.drain_due),
            wanted=state.wanted,
            scaled=state.last_scale.replicas if state.last_scale else None,
            applied=state.applied_replicas,
            answered=state.answered or state.spec is None,
            shortfall=state.shortfall,
            explained=scheduled.message if scheduled else "",
            placeable=_placeable(scheduler, owner, world) if whole and scheduler is not None else 0,
            shown_ready=sum(each.ready for each in state.staying()),
            placements=placements,
        )


def _installer(item: ObjectView, objects: Mapping[str, Any]) -> str:
    """Return the uid of the gateway whose release has no object with a mark yet."""
    gateway = objects.get(INFERENCE_GATEWAY.workflow_id)
    is_release = item.kind == "HelmRelease" and item.place == CONTROL
    return str(gateway.state.uid) if gateway is not None and is_release else ""


def _was_reset(world: "World", product: Entity[Any]) -> bool:
    workflow_id = names.workflow_id(product.kind, product.namespace, product.name)
    execution = world.server.executions[workflow_id]
    first = execution.run.first_run_id
    return any(run.reset_from for run in execution.runs if run.first_run_id == first)


def _replicas(objects: Mapping[str, Any], world: "World") -> Iterator[SeenReplica]:
    for product in _of_kind(objects, "ModelReplica"):
        state = product.state
        skipped = bool(state.forced) or not _FORCED.isdisjoint(state.teardown.outcomes.values())
        yield SeenReplica(
            uid=state.uid,
            name=(product.namespace, product.name),
            deployment=state.start.deployment,
            deployment_uid=state.start.deployment_uid,
            cluster=state.start.cluster,
            deleting=state.deleting,
            serving=is_true(state.conditions, "Serving"),
            held=state.applied is not None and bool(state.applied.held),
            step=state.teardown.number if state.deleting else 0,
            skipped=skipped,
            was_reset=_was_reset(world, product) or state.start.restarted,
            replaces=state.apply_started and not state.inventory_complete,
        )


def _broken(objects: Mapping[str, Any], parts: Any) -> Iterator[str]:
    """Name the objects that depend on a cluster whose API server does not answer."""
    silent = {
        product.name
        for product in _of_kind(objects, "InferenceCluster")
        if not parts.reachable(product.name)
    }
    for workflow_id, product in objects.items():
        if product is None or not isinstance(product, Entity):
            continue
        match product.kind:
            case "InferenceCluster":
                needs = {product.name}
            case "ModelReplica":
                needs = {product.state.start.cluster}
            case "ModelDeployment":
                needs = {each.cluster for each in product.state.replicas.values()}
            case "ModelCache":
                needs = set(product.state.stagings)
            case _:
                needs = set()
        if needs & silent:
            yield workflow_id


# Clusters, caches and routes


def _clusters(objects: Mapping[str, Any], parts: Any) -> Iterator[SeenCluster]:
    for product in _of_kind(objects, "InferenceCluster"):
        state = product.state
        forced = bool(state.forced) or state.cloud.gone or bool(state.left_behind)
        forced = forced or any(event.reason == "Forced" for event in state.events)
        yield SeenCluster(
            name=product.name,
            uid=state.uid,
            ready=is_true(state.conditions, "Ready"),
            finds_release=_backend_reason(state) == "ReleaseConflict",
            reachable=parts.reachable(product.name) and not _lacks_a_class(state),
            deleting=state.deleting,
            tearing_down=state.stack.removal.begun,
            cloud_deleting=bool(state.cloud.deleted),
            forced=forced or labels.SKIP_IN_CLUSTER_TEARDOWN in state.annotations,
            unexplained=tuple(_unexplained(state.cloud.states)),
        )


def _backend_reason(state: Any) -> str:
    found = condition_of(state.conditions, "BackendReady")
    return found.reason if found is not None else ""


def _unexplained(states: Iterable[CloudObjectState]) -> Iterator[str]:
    """Yield cloud objects whose problem lacks the words, the time or the next step."""
    for each in states:
        if each.reason and not (each.message and each.since and each.next_step):
            yield f"{each.pool or each.key} ({each.reason})"


def _lacks_a_class(state: Any) -> bool:
    """Return whether a cluster that was never Ready waits for a missing class."""
    found = condition_of(state.conditions, "ClusterReady")
    return found is not None and found.reason == "WaitingForClasses"


def _copies(objects: Mapping[str, Any], parts: Any) -> Iterator[SeenCopy]:
    complete = {(each.cache, each.cluster, each.claim) for each in parts.volumes() if each.complete}
    for product in _of_kind(objects, "ModelCache"):
        for row in product.status().get("clusters", ()):
            if claim := row.get("claimName"):
                is_complete = (product.state.uid, row["name"], claim) in complete
                name = (product.namespace, product.name)
                yield SeenCopy(name, row["name"], row["phase"], is_complete)


def _routes(objects: Mapping[str, Any], parts: Any) -> Iterator[SeenRoute]:
    """Yield the routes of services that run, or whose route is still there."""
    live = {(each.namespace, each.service): frozenset(each.endpoints) for each in parts.routes()}
    gateway = objects.get(names.workflow_id("InferenceGateway", "", "default"))
    isolates = None
    if gateway is not None and not gateway.state.deleting and gateway.state.reachable:
        isolates = gateway.state.isolates_backends
    owners = [*_of_kind(objects, "ModelReplica"), *_of_kind(objects, "ModelEndpoint")]
    services = {(each.namespace, each.name): each for each in _of_kind(objects, "ModelService")}
    for name in sorted({*live, *services}):
        service = services.get(name)
        wanted = None
        if (
            isolates is not None
            and service is not None
            and not service.state.deleting
            and service.state.spec
        ):
            wanted = _selected(service, owners, isolates=isolates)
        yield SeenRoute(name, live.get(name, frozenset()), wanted)


def _selected(service: Any, owners: Iterable[Any], *, isolates: bool) -> frozenset[str] | None:
    """Select endpoints by their labels and priorities; None if that does not decide alone."""
    entries = [
        (each.get("priority", 0), each["selector"].get("matchLabels") or {})
        for each in service.state.spec["endpoints"]
    ]
    found: list[list[str]] = [[] for _ in entries]
    for owner in owners:
        reported = owner.state.endpoint.reported
        if owner.namespace != service.namespace or reported is None or not reported.backend:
            continue
        matching = [
            number for number, (_, pairs) in enumerate(entries) if selects(pairs, reported.labels)
        ]
        if matching:
            found[matching[0]].append(owner.name)
    used = [(priority, each) for (priority, _), each in zip(entries, found, strict=True) if each]
    first = min((priority for priority, _ in used), default=0)
    chosen = frozenset(name for priority, each in used if priority == first for name in each)
    return None if len(chosen) > ROUTE_BACKENDS_MAX or not isolates else chosen
