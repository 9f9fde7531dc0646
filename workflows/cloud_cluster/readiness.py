"""Decide whether a cluster is ready, and describe each pool and each other object.

A cluster is ready without those of its objects that nothing needs yet. All functions
are pure.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from api_types import clock
from api_types.messages.clouds import (
    CLUSTER_KEY,
    CONNECTION,
    STATES_MAX,
    SYSTEM_NODES,
    CloudObject,
    CloudObjectState,
    CloudProblem,
    ObjectPhase,
)
from workflows.cloud_cluster import deletion, graph
from workflows.cloud_cluster.next_steps import next_step
from workflows.cloud_cluster.state import CloudState, InventoryEntry

# Without these add-ons no pod of a model runs. Nothing at the cloud needs them, so they
# are not in the graph below the nodes.
_CORE_ADD_ONS = ("addon/kube-proxy", "addon/coredns")
_NO_NODES: tuple[ObjectPhase, ...] = ("Broken", "Absent")


def is_pool(each: CloudObject) -> bool:
    """Return whether an object is a pool of the spec, and not its launch template."""
    return bool(each.pool) and each.key.startswith("pool/")


def is_complete(state: CloudState) -> bool:
    """Return whether all objects match the plan and nothing is refused."""
    plan = state.plan
    if plan is None or not plan.objects or plan.refused:
        return False
    return all(
        graph.is_made(state.inventory.get(each.key), each) for each in plan.objects
    )


def is_ready(state: CloudState) -> bool:
    """Return whether the control plane, the system pool and one GPU pool are ready.

    A spec without pools needs none. A spec that is refused as a whole is not ready.
    """
    plan = state.plan
    if plan is None or not plan.objects:
        return False
    if any(not problem.at for problem in plan.refused):
        return False
    wanted = {each.key: each for each in plan.objects}
    pools = [each for each in plan.objects if is_pool(each)]
    if pools or plan.refused:
        serving = any(_is_sound(state.inventory.get(each.key), each) for each in pools)
        if not serving:
            return False
    return all(
        graph.is_made(state.inventory.get(key), wanted[key]) for key in _core(wanted)
    )


def _core(wanted: Mapping[str, CloudObject]) -> list[str]:
    """Return the keys of the objects that every pod needs, with all their needs."""
    found = [
        key
        for key, each in wanted.items()
        if key == CLUSTER_KEY
        or key in _CORE_ADD_ONS
        or each.kind in (CONNECTION, SYSTEM_NODES)
    ]
    for key in found:
        found += [
            need for need in wanted[key].needs if need in wanted and need not in found
        ]
    return found


def _is_sound(entry: InventoryEntry | None, each: CloudObject) -> bool:
    return graph.is_made(entry, each) and entry is not None and entry.health is None


def shown_phase(entry: InventoryEntry, wanted: CloudObject) -> ObjectPhase:
    """Return the phase that users see. Only a sound object as planned is Ready."""
    if entry.unread:
        return "Unknown"
    if entry.phase != "Ready":
        return entry.phase
    if entry.health is not None:
        return "Degraded"
    return "Ready" if graph.is_made(entry, wanted) else "Differs"


def ready_text(state: CloudState, running: Collection[str]) -> str:
    """Describe a cluster that became ready, with the objects that it lacks."""
    planned = state.plan.objects if state.plan else []
    made = sum(graph.is_made(state.inventory.get(each.key), each) for each in planned)
    text = f"{made} of {len(planned)} cloud objects are ready"
    states = states_of(state, running)
    lacking = [each.key or f"pool {each.pool}" for each in states if not each.ready]
    return f"{text}; not yet: {', '.join(lacking)}" if lacking else text


# The states for the InferenceCluster


def states_of(state: CloudState, running: Collection[str]) -> list[CloudObjectState]:
    """Return the state of each pool, and of each other object with a problem.

    If the cluster is ready, also return the other objects that it does not have yet.
    """
    if state.deletion is not None:
        return deletion.states_of(state, running)
    if state.plan is None:
        return []
    refused = {problem.at: problem for problem in state.plan.refused if problem.at}
    view = _View(state, running, refused)
    objects = list(_shown_objects(state))
    pools = [view.state_of(each) for each in objects if is_pool(each)]
    named = {each.pool for each in pools}
    pools += [
        view.state_of_refused(problem)
        for at, problem in refused.items()
        if _pool_at(at) not in named
    ]
    others = [view.state_of(each) for each in objects if not is_pool(each)]
    shown = [
        each for each in others if each.reason or (state.was_ready and not each.ready)
    ]
    return [*pools, *shown][:STATES_MAX]


def _shown_objects(state: CloudState) -> Iterator[CloudObject]:
    """Yield the planned objects, pools that the plan refuses, and failed deletions."""
    planned = state.plan.objects if state.plan else []
    keys = {each.key for each in planned}
    yield from planned
    for key, entry in state.inventory.items():
        is_refused = not entry.removed_since and is_pool(entry.object)
        if key not in keys and (is_refused or entry.failure.type):
            yield entry.object


def _pool_at(at: str) -> str:
    return at.removeprefix("pool ")


@dataclass(frozen=True)
class _View:
    state: CloudState
    running: Collection[str]
    refused: Mapping[str, CloudProblem]

    def state_of(self, each: CloudObject) -> CloudObjectState:
        entry = self.state.inventory.get(each.key)
        problem = self.refused.get(f"pool {each.pool}") if is_pool(each) else None
        found = CloudObjectState(
            key=each.key, kind=each.kind, name=each.name, pool=each.pool
        )
        if entry is None:
            message = self._waits_for(each)
            return found.model_copy(
                update={"message": message, "lacks_nodes": is_pool(each)}
            )
        lacks = not entry.was_ready or entry.phase in _NO_NODES
        if entry.health is not None:
            lacks = lacks or entry.health.lacks_nodes
        reason, code, message = _problem_of(entry)
        if problem is not None:
            reason, code, message = problem.reason, "", problem.text
        step = next_step(reason, self._cluster, entry) if reason else ""
        since = entry.trouble_since if reason else entry.since
        phase = shown_phase(entry, each)
        if problem is not None:
            since = self.state.refused_since.get(problem.at, "")
            phase = "Differs" if phase == "Ready" else phase
        return found.model_copy(
            update={
                "phase": phase,
                "ready": phase == "Ready",
                "was_ready": entry.was_ready,
                "lacks_nodes": lacks and is_pool(each),
                "reason": reason,
                "code": code,
                "message": message or self._waits_for(each),
                "since": _timestamp(since),
                "next_step": step,
                "retry_at": _timestamp(entry.retry_at),
            }
        )

    def state_of_refused(self, problem: CloudProblem) -> CloudObjectState:
        """Return the state of a pool that has no object."""
        return CloudObjectState(
            pool=_pool_at(problem.at),
            lacks_nodes=True,
            reason=problem.reason,
            message=problem.text,
            since=_timestamp(self.state.refused_since.get(problem.at, "")),
            next_step=next_step(problem.reason, self._cluster),
        )

    @property
    def _cluster(self) -> str:
        return self.state.account.cluster if self.state.account else ""

    def _waits_for(self, each: CloudObject) -> str:
        """Return the awaited state of an object without a problem, "" if it is ready."""
        entries = self.state.inventory
        if graph.is_made(entries.get(each.key), each):
            return ""
        if each.key in self.running:
            return f"waits for {each.waits_for}"
        planned = {
            other.key: other
            for other in (self.state.plan.objects if self.state.plan else ())
        }
        for key in each.needs:
            if key in planned and not graph.is_made(entries.get(key), planned[key]):
                return f"waits for {key} ({planned[key].kind} {planned[key].name})"
        return "waits for its turn"


def _timestamp(carried: str) -> str:
    return clock.timestamp(datetime.fromisoformat(carried)) if carried else ""


def _problem_of(entry: InventoryEntry) -> tuple[str, str, str]:
    """Return the error type, the cloud's code and the text of an object's problem."""
    failure = entry.failure if entry.failure.type else entry.trouble
    if failure.type:
        return failure.type, entry.health.code if entry.health else "", failure.message
    if entry.health is not None:
        return entry.health.error, entry.health.code, entry.health.text
    return "", "", ""
