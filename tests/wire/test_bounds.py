"""Every text of every message has a bound.

Names and ids beyond it are refused, and sentences are shortened.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, get_args, get_origin

import annotated_types
import pytest
from pydantic import BaseModel, BeforeValidator

from api_types.base import TEXT_BYTES_MAX, Text
from api_types.messages.entities import ClusterChanged, Replace, SetSpec
from api_types.messages.signals import ENTITIES, FleetSchedulerSignals, signals_of
from api_types.messages.versions import MessageVersion
from api_types.payloads.limits import PAYLOAD_BYTES_MAX
from api_types.resources.status import LeftBehind
from tests.scheduler.builders import deployment
from tests.workflows.fleet_scheduler.cycle import run_cycle
from tests.workflows.fleet_scheduler.malformed import MANIFEST
from tests.workflows.fleet_scheduler.requests import place
from workflows.entity.arguments import UnusableMessage
from workflows.entity.conditions import MALFORMED
from workflows.entity.context import EntityContext
from workflows.entity.registering.registrations import REGISTERED_BYTES_MAX, is_newest
from workflows.entity.state import EntityState
from workflows.fleet_scheduler import inbox
from workflows.fleet_scheduler.cache import known_versions
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState

NOW_MS = 1_800_000_000_000

# Texts of users and of other projects that replace one another. The size of the message
# bounds them.
REPLACED = {
    "CacheSite.labels",
    "CacheChanged.match_labels",
    "ClusterFacts.apis",
    "ClusterFacts.drivers",
    "SetLabels.labels",
    "SetLabels.picker_flags",
    "SetTemplate.labels",
    "SetTemplate.picker_flags",
    "CapacityPool.device_free",
    # A queue that Temporal would refuse is refused with the reason.
    "Connection.task_queue",
}


SHORTENED = get_args(Text)[1:]


def models() -> Iterator[type[BaseModel]]:
    """Return the messages of all signals and updates, and their inner models.

    Statuses of objects are bounded where they are written.
    """
    found: dict[type[BaseModel], None] = {Replace: None}
    waiting: list[Any] = [
        signal.message
        for kind in (*ENTITIES, FleetSchedulerSignals)
        for signal in signals_of(kind).values()
    ]
    while waiting:
        part = waiting.pop()
        waiting.extend(get_args(part))
        if (
            isinstance(part, type)
            and issubclass(part, BaseModel)
            and part not in found
            and part is not LeftBehind
        ):
            found[part] = None
            waiting.extend(field.annotation for field in part.model_fields.values())
    yield from found


def unbounded(annotation: Any, marks: tuple[Any, ...] = ()) -> bool:
    """Return whether an annotation has a text without a bound."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return unbounded(inner, (*marks, *more))
    if annotation is str:
        return not any(_bounds(mark) for mark in marks)
    if get_args(annotation) == (str, Any):
        return False  # a JSON tree, which replaces the one before
    return any(unbounded(part) for part in get_args(annotation))


def _bounds(mark: Any) -> bool:
    return (
        isinstance(mark, annotated_types.MaxLen)
        or mark in SHORTENED
        or any(
            isinstance(each, annotated_types.MaxLen)
            for each in getattr(mark, "metadata", ())
        )
    )


@pytest.mark.parametrize("model", list(models()), ids=lambda model: model.__name__)
def test_every_text_of_a_message_has_a_bound(model: type[BaseModel]) -> None:
    found = {
        f"{model.__name__}.{name}"
        for name, field in model.model_fields.items()
        if unbounded(field.annotation, tuple(field.metadata))
    }
    assert found - REPLACED == set()


def test_no_exception_is_declared_for_what_has_a_bound() -> None:
    found = {
        f"{model.__name__}.{name}"
        for model in models()
        for name, field in model.model_fields.items()
        if unbounded(field.annotation, tuple(field.metadata))
    }
    assert REPLACED - found <= {"Connection.task_queue"}


def test_a_sentence_is_shortened_and_nothing_is_refused_for_it() -> None:
    assert (
        len(
            ClusterChanged(
                name="eu", sequence=1, problem="ü" * PAYLOAD_BYTES_MAX
            ).problem.encode()
        )
        <= TEXT_BYTES_MAX
    )
    assert SetSpec.model_validate({"reason": "short"}).reason == "short"


def test_a_text_without_a_bound_is_found() -> None:
    class Careless(BaseModel):
        names: dict[str, list[str]]

    assert unbounded(Careless.model_fields["names"].annotation)
    assert all(isinstance(mark, BeforeValidator) for mark in SHORTENED)


def test_names_that_nobody_has_do_not_fill_the_scheduler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(inbox, "FLEET_OBJECTS_MAX", 3)
    monkeypatch.setattr(known_versions, "FLEET_OBJECTS_MAX", 3)
    cache = SchedulerCache(SchedulerState(), lambda: NOW_MS)
    for number in range(5):
        run_cycle(
            cache,
            ("report_class", {"name": f"c{number}", "generation": 1, "spec": None}),
        )
        manifest = {
            **MANIFEST,
            "metadata": {**MANIFEST["metadata"], "name": f"e{number}"},
        }
        run_cycle(
            cache,
            (
                "report_cluster",
                {"name": f"e{number}", "uid": "u", "sequence": 1, "manifest": manifest},
            ),
        )
        run_cycle(cache, ("place", place(deployment(name=f"d{number}")).wire()))
    assert (
        len(cache.state.classes),
        len(cache.fleet.clusters),
        len(cache.deployments.wire()["present"]),
    ) == (3, 3, 3)
    assert {
        vars(record)["problems"].partition(":")[0] for record in caplog.records
    } == {"c3", "c4", "e3", "e4", "ml/d3", "ml/d4"}
    # The known exceptions still exist.
    run_cycle(cache, ("report_class", {"name": "c0", "generation": 2, "spec": None}))
    assert cache.state.classes["c0"] == 2


def test_names_that_nobody_has_do_not_fill_the_registrations_of_an_object() -> None:
    known: dict[str, MessageVersion] = {}
    for number in range(REGISTERED_BYTES_MAX // 1000):
        assert is_newest(known, f"{number:>01000}", "u", 1)
    with pytest.raises(UnusableMessage, match="cannot be registered"):
        is_newest(known, "y" * 1000, "u", 1)
    assert sum(map(len, known)) <= REGISTERED_BYTES_MAX
    assert is_newest(known, next(iter(known)), "u", 2)


def test_refusals_take_few_of_the_events_and_cost_no_pass() -> None:
    context = EntityContext(
        "InferenceClass",
        EntityState(),
        lambda: None,
        "inferenceclass/h100",
        lambda: datetime(2026, 1, 1, tzinfo=UTC),
    )
    context.record_event("Normal", "Accepted", "the first")
    context.queued, version = False, context.state.resource_version
    for number in range(1000):
        context.record_refusal(MALFORMED, f"number {number}")
    assert [event.message for event in context.state.events] == [
        "the first",
        *(f"number {number}" for number in range(995, 1000)),
    ]
    assert (context.queued, context.state.resource_version) == (False, version)


@pytest.mark.parametrize(
    ("signal", "payload"),
    [
        (
            "report_class",
            {"name": "h100", "generation": 1, "spec": None, "epoch": 2**60},
        ),
        (
            "report_cluster",
            {"name": "eu", "uid": "u", "sequence": 2**60, "manifest": MANIFEST},
        ),
        ("place", {**place(deployment()).wire(), "sequence": 2**60}),
    ],
)
def test_the_scheduler_takes_no_number_that_json_cannot_carry(
    signal: str, payload: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cache = SchedulerCache(SchedulerState(), lambda: NOW_MS)
    run_cycle(cache, (signal, payload))
    (record,) = caplog.records
    assert f"less than or equal to {2**53 - 1}" in vars(record)["problems"]
    assert (
        cache.state.epoch,
        cache.state.classes,
        dict(cache.fleet.clusters),
        cache.state.queue,
    ) == (0, {}, {}, {})
    assert [event.reason for event in cache.state.events] == ["MalformedMessage"]
