"""Every collection in the state that workflows carry from run to run has a bound.

A new collection fails this test until the table names its bound, and the tests that
check the bound if it is a number or a time.
"""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from api_types.resources.status import LeftBehind
from workflows.cloud_cluster.state import CloudState
from workflows.endpoint_directory.state import DirectoryState
from workflows.entity.admission import REQUESTS_KEPT, accept_request
from workflows.entity.conditions import EVENTS_KEPT, with_event
from workflows.entity.state import LEFT_BEHIND_KEPT, EntityState
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.inference_class import ClassState
from workflows.inference_cluster.state import ClusterState
from workflows.inference_gateway.state import GatewayState
from workflows.model_cache.state import CacheState
from workflows.model_deployment.state import DeploymentState
from workflows.model_endpoint import EndpointState
from workflows.model_replica.state import ModelReplicaState
from workflows.model_service.state import ServiceState
from workflows.redelivery import RedeliveryState
from workflows.stack_upgrades.state import UpgradesState

STATES = (
    CacheState,
    ClassState,
    CloudState,
    ClusterState,
    DeploymentState,
    DirectoryState,
    EndpointState,
    GatewayState,
    ModelReplicaState,
    RedeliveryState,
    SchedulerState,
    ServiceState,
    UpgradesState,
)

# Keyed by the class that declares the field. Messages and user manifests are replaced
# as whole values, so they are not listed.
BOUNDS = {
    "EntityState.labels": "the manifest, whose size is limited",
    "EntityState.annotations": "the manifest, whose size is limited",
    "EntityState.spec": "the manifest, whose size is limited",
    "EntityState.conditions": "one per type, and types are constants",
    "EntityState.events": "EVENTS_KEPT",
    "EntityState.requests": "REQUESTS_KEPT",
    "EntityState.changing_requests": "REQUESTS_SHOWN",
    "EntityState.left_behind": "LEFT_BEHIND_KEPT",
    "EntityState.receivers": (
        "one per workflow that is reported to at present; replaced by every check"
    ),
    "EntityState.published": "two texts",
    "EntityState.deliveries": "DELIVERIES_KEPT",
    "ClassState.clusters": (
        "one per cluster that uses the class; dropped when it unregisters or does "
        "not run"
    ),
    "ClassState.registrations": "one per cluster that uses the class, and ENDED_KEPT others",
    "ClassState.unanswered": "one per cluster that uses the class; emptied by every pass",
    "ClusterState.classes": "one per class of the spec; dropped when it leaves the spec",
    "ClusterState.registered_classes": "one per class of the spec; dropped when it leaves the spec",
    "ClusterState.pools": "one per pool of the spec",
    "ClusterState.occupied": (
        "one per replica on the cluster; replaced by every report of the scheduler"
    ),
    "ClusterState.caches": "one per cache that has objects here; dropped when it has none",
    "CloudLink.pools": "_POOLS_KEPT",
    "CloudLink.removed": "REMOVED_MAX",
    "CloudLink.states": "STATES_MAX; replaced by every report",
    "CloudLink.events": "EVENTS_KEPT",
    "CloudLink.remaining": "as many as one attempt shows; replaced by every attempt",
    "StackState.done": "one per step, and steps are constants",
    "StackState.releases": "one per component, and components are constants",
    "StackState.groups": "one per group of objects, and groups are constants",
    "StackState.notes": "one per step; replaced by every apply",
    "StackState.failures": "one per step",
    "StackState.attempts": "one per step",
    "StackState.retry_at": "one per step",
    "StackState.rewrites": "one per component and group",
    "StackState.repairs": "one per component and group",
    "StackState.repaired_at": "one per component and group",
    "StackState.stages": "one per stage, and stages are constants",
    "StackState.late": "one per stage",
    "StackState.covered": "one per component and group",
    "TurnState.holders": "HOLDERS_SHOWN_MAX",
    "RemovalProgress.remaining": "as many as one step shows; replaced by every attempt",
    "RemovalProgress.finalizers": "FINALIZERS_MAX; emptied by every step",
    "RemovalProgress.skipped": "as many as one step shows, for each step",
    "ClusterState.cache_registrations": (
        "one per cache that has objects here, and ENDED_KEPT others"
    ),
    "CacheState.stagings": (
        "one per cluster that is selected or holds objects; dropped by `can_forget`"
    ),
    "CacheState.unready": (
        "one per cluster that is selected; dropped when something can be staged on "
        "it, and replaced by every survey"
    ),
    "CacheState.silent": "one per cluster of the fleet; replaced by every survey",
    "CacheState.users": (
        "one per deployment and replica that uses the cache; dropped when it "
        "unregisters or does not run"
    ),
    "CacheState.reported": "one per user, and dropped with it",
    "CacheState.former_users": "ENDED_KEPT",
    "ClusterStaging.copies": (
        "one per artifact on the cluster; removed when no pod mounts it and a "
        "newer one is complete"
    ),
    "CacheUser.claims": "one per volume that pods of one replica mount",
    "DeploymentState.replicas": "one per replica; dropped when it is gone",
    "DeploymentState.adapters": (
        "one per cache of the adapters of the template; dropped when it leaves the "
        "template"
    ),
    "DeploymentState.scale_writers": "WRITERS_MAX",
    "ScaleWriter.times": "three times",
    "DeploymentState.scheduler_conditions": "one per type, and types are constants",
    "DeploymentState.sent_labels": "the labels of the manifest",
    "DeploymentState.revisions": "REVISIONS_MAX",
    "DeploymentState.evictions": "one per replica; emptied by every pass",
    "DeploymentState.unknown": (
        "one per replica that reports and is not tracked; dropped when its account "
        "was read"
    ),
    "DeploymentState.revoked": "one per replica; emptied by every pass",
    "DeploymentState.returned": (
        "one per placement that was given back; dropped when the scheduler has "
        "answered a request with it"
    ),
    "DeploymentState.requested_returned": "a part of `returned`",
    "DeploymentState.ended": (
        "one per replica of the name that was terminated within the retention of "
        "the namespace; emptied by a deletion"
    ),
    "DeploymentState.lost": "one per replica; dropped when it is started again",
    "DeploymentState.leaving": "one per replica; dropped when it is gone",
    "ModelReplicaState.entry": "its ledger entry",
    "ModelReplicaState.cache_mounted": (
        "one per volume that was assigned since the replica was last Ready"
    ),
    "ModelReplicaState.adapters": (
        "one per cache of the adapters of the spec; dropped when it leaves the spec"
    ),
    "ReplicaAdapterCache.cache_mounted": (
        "one per volume that was assigned since the replica was last Ready"
    ),
    "ModelReplicaState.picker_flags": "the flags of an annotation",
    "ModelReplicaState.applied_sources": "one per engine of the spec",
    "ModelReplicaState.applied_sizes": "one per engine of the spec",
    "ModelReplicaState.overdue": "one per engine of the spec",
    "TeardownProgress.waiting": "one per object of the inventory; replaced by every attempt",
    "TeardownProgress.outcomes": "one per step of the teardown, and steps are constants",
    "TeardownProgress.skipped": "one per object of the inventory",
    "CloudState.classes": "one per class of a pool of the spec or of a pool that is being deleted",
    "CloudState.inventory": "one per object at the cloud; dropped when it is gone",
    "CloudState.durations": "one per kind of object, and kinds are constants",
    "CloudState.refused_since": "one per refused pool of the spec; replaced by every plan",
    "CloudState.leftovers": "as many as one search shows; replaced by every search",
    "CloudState.not_owned": "one per object of the inventory",
    "CloudState.events": "EVENTS_KEPT",
    "InventoryEntry.facts": "the facts of one object, whose names are constants",
    "DirectoryState.endpoints": "one per endpoint; dropped when no route has it",
    "DirectoryState.services": "one per service; dropped when it is gone",
    "DirectoryState.ended": "ENDED_KEPT",
    "DirectoryState.dirty": "a part of `services`; emptied by every pass",
    "DirectoryState.events": "EVENTS_KEPT",
    "KnownService.entries": "the entries of the service's spec",
    "KnownService.listed": "a part of `endpoints`",
    "KnownService.unanswered": "a part of `endpoints`; emptied by every answer",
    "KnownService.routed": "a part of `endpoints`",
    "GatewayState.users": (
        "one per service and endpoint; dropped when it unregisters or does not run"
    ),
    "GatewayState.registrations": "one per user, and ENDED_KEPT others",
    "GatewayState.unanswered": "a part of `users`; emptied by every report",
    "GatewayState.denied_cidrs": "DENIED_NETWORKS_MAX",
    "GatewayState.taken_steps": "one per step, and steps are constants",
    "RedeliveryState.held": "HELD_MAX",
    "RedeliveryState.senders": "SENDERS_MAX",
    "RedeliveryState.unnotified": "a part of SENDERS_MAX",
    "RedeliveryState.events": "REFUSALS_KEPT of each reason, and reasons are constants",
    "UpgradesState.requests": "one per cluster; dropped when its turn is over",
    "UpgradesState.known": "one per request, and ENDED_KEPT others",
    "UpgradesState.events": "EVENTS_KEPT",
    "SchedulerState.fleet": (
        "the packed fleet: one entry per cluster and replica, and what decisions "
        "left behind for a limited time"
    ),
    "SchedulerState.inbox": "emptied by every pass",
    "SchedulerState.queue": "one request per deployment",
    "SchedulerState.unplaced": "one request per deployment; dropped when it is placed or deleted",
    "SchedulerState.policy": "the fleet policy",
    "SchedulerState.asked_again": "a part of `unresponsive`",
    "SchedulerState.untold": "a part of `unresponsive`",
    "SchedulerState.withheld": "one request per deployment; dropped when its account is read",
    "SchedulerState.unresponsive": "one per entity that did not answer a rebuild",
    "SchedulerState.unresponsive_since": "a part of `unresponsive`",
    "SchedulerState.deleting_clusters": "one per cluster that is being deleted",
    "SchedulerState.deleting_deployments": (
        "one per deployment that is being deleted; dropped when nothing is charged "
        "to it"
    ),
    "SchedulerState.classes": "one per class; dropped when it is deleted",
    "SchedulerState.audit": "replaced by every recount",
    "SchedulerState.events": "REFUSALS_KEPT of each of two reasons",
}


def collections_of(model: type[BaseModel]) -> Iterator[str]:
    """Yield the collections of a model, and of the workflow models nested in it."""
    for declared in reversed(model.__mro__):
        for name in getattr(declared, "__annotations__", {}):
            field = model.model_fields.get(name)
            if field is None or not issubclass(declared, BaseModel):
                continue
            for part in _parts(field.annotation):
                if part in (list, dict, set, tuple):
                    yield f"{declared.__name__}.{name}"
                elif (
                    isinstance(part, type)
                    and issubclass(part, BaseModel)
                    and part.__module__.startswith("workflows.")
                ):
                    yield from (
                        found
                        for found in collections_of(part)
                        if not found.startswith(
                            ("TrackedReplica.", "TemplateRevision.", "KnownClass.")
                        )
                    )


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the types of an annotation. A container is yielded as its origin."""
    origin = get_origin(annotation)
    if origin is None:
        yield annotation
        return
    if origin not in (Union, UnionType, Annotated):
        yield origin
    for argument in get_args(annotation):
        yield from _parts(argument)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_every_carried_collection_has_a_bound(state: type[BaseModel]) -> None:
    assert {name for name in collections_of(state) if name not in BOUNDS} == set()


def test_no_bound_is_declared_for_a_missing_collection() -> None:
    assert (
        set(BOUNDS) - {name for state in STATES for name in collections_of(state)}
        == set()
    )


def test_a_collection_without_a_bound_is_found() -> None:
    class Careless(EntityState):
        names_seen: list[str] | None = None

    assert "Careless.names_seen" in set(collections_of(Careless))


def test_abandoned_objects_are_listed_up_to_a_limit_newest_last() -> None:
    state = EntityState()
    for number in range(LEFT_BEHIND_KEPT + 5):
        state.add_left_behind([an_object(number)])
    state.add_left_behind([an_object(10), an_object(10_000)])
    assert len(state.left_behind) == LEFT_BEHIND_KEPT
    assert [item.name for item in state.left_behind[-3:]] == [
        f"x-{LEFT_BEHIND_KEPT + 4}",
        "x-10",
        "x-10000",
    ]


def an_object(number: int) -> LeftBehind:
    return LeftBehind(
        kind="Job", name=f"x-{number}", location="eu", reason="deletion was forced"
    )


def test_requests_and_events_are_kept_up_to_a_limit() -> None:
    state = EntityState()
    for number in range(REQUESTS_KEPT + 5):
        accept_request(state, f"r{number}")
        state.events = with_event(
            state.events, "Normal", "Tested", f"number {number}", now=""
        )
    assert (len(state.requests), len(state.events)) == (REQUESTS_KEPT, EVENTS_KEPT)
    assert state.requests[-1] == f"r{REQUESTS_KEPT + 4}"
