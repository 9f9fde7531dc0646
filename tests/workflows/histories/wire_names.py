"""The names in histories and messages.

A Python name may change; these stay.

Workflow types with their signals, queries, updates and carried states; activities with
their inputs and outputs; error types; search attributes. `record.py` writes them for
the current version.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel
from temporalio import activity, workflow

from activities.caches.activities import CacheActivities
from activities.caches.revisions import RevisionActivities
from activities.clouds.activities import CloudActivities
from activities.clusters.activities import ClusterActivities
from activities.messaging.entity_client import EntityClient
from activities.messaging.search_attributes import (
    CONNECTION_MEMO,
    PUBLISHED_MEMO,
    SEARCH_ATTRIBUTES,
)
from activities.routing.activities import RoutingActivities
from activities.workloads.activities import WorkloadActivities
from api_types.errors import ModelplaneError
from api_types.messages.signals import receiver_of, signals_of
from workflows import registry
from workflows.cloud_cluster.state import CloudState
from workflows.endpoint_directory.state import DirectoryState
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.redelivery import RedeliveryState
from workflows.stack_upgrades.state import UpgradesState

RECORDED = Path(__file__).parents[2] / "histories" / "wire_names.json"

OWNERS = (
    EntityClient,
    ClusterActivities,
    WorkloadActivities,
    CacheActivities,
    RevisionActivities,
    RoutingActivities,
    CloudActivities,
)
FREE = (*registry.SCHEDULER_ACTIVITIES, *registry.REBUILD_ACTIVITIES)


def wire_names() -> dict[str, list[str]]:
    """Return the names, grouped by what they name."""
    found = {
        "workflow types": [owner.kind for owner in _workflows()],
        "activities": [_name_of(each) for each in _activities()],
        "error types": [error.__name__ for error in _subclasses(ModelplaneError)],
        "search attributes": [key.name for key in SEARCH_ATTRIBUTES],
        "memos": [CONNECTION_MEMO, PUBLISHED_MEMO],
    }
    for owner in _workflows():
        definition = workflow._Definition.must_from_class(owner)
        found[f"signals of {owner.kind}"] = list(map(str, definition.signals))
        found[f"queries of {owner.kind}"] = [
            str(name) for name in definition.queries if not str(name).startswith("__")
        ]
        found[f"updates of {owner.kind}"] = list(map(str, definition.updates))
        found[f"state of {owner.kind}"] = list(_fields(_state_of(owner)))
        for name, signal in signals_of(receiver_of(owner.kind)).items():
            # Two kinds may accept different messages under one name.
            found[f"signal {name}"] = [
                *found.get(f"signal {name}", ()),
                *_fields(signal.message),
            ]
    for each in _activities():
        hints = get_type_hints(each)
        found[f"activity {_name_of(each)}"] = [
            path for taken in hints.values() for path in _fields(taken)
        ]
    return {what: sorted(set(names)) for what, names in sorted(found.items()) if names}


def _workflows() -> tuple[Any, ...]:
    return registry.WORKFLOWS


def _state_of(owner: Any) -> type[BaseModel]:
    """Return the model of a workflow's start argument, which the workflow parses itself."""
    others: dict[str, type[BaseModel]] = {
        "FleetScheduler": SchedulerState,
        "EndpointDirectory": DirectoryState,
        "StackUpgrades": UpgradesState,
        "CloudCluster": CloudState,
        "Redelivery": RedeliveryState,
    }
    state: type[BaseModel] = (
        others.get(owner.kind) or get_args(owner.__orig_bases__[0])[0]
    )
    return state


def _activities() -> list[Callable[..., Any]]:
    methods = [member for owner in OWNERS for member in vars(owner).values()]
    return [
        each
        for each in (*methods, *FREE)
        if hasattr(each, "__temporal_activity_definition")
    ]


def _name_of(each: Callable[..., Any]) -> str:
    return str(activity._Definition.must_from_callable(each).name)


def _subclasses(root: type[ModelplaneError]) -> Iterator[type[ModelplaneError]]:
    for child in root.__subclasses__():
        yield child
        yield from _subclasses(child)


def _fields(
    annotation: Any, path: str = "", above: tuple[Any, ...] = ()
) -> Iterator[str]:
    """Yield the paths of the fields of a payload, as in its JSON."""
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        for part in get_args(annotation):
            yield from _fields(part, path, above)
        return
    if annotation in above:
        return
    for name, field in annotation.model_fields.items():
        named = f"{path}.{field.alias or name}".lstrip(".")
        yield named
        yield from _fields(field.annotation, named, (*above, annotation))
