"""Every signal of the table has one handler, and every handler accepts a signal of the table."""

import logging
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow

from api_types.base import Message
from api_types.messages.entities import SetLabels
from api_types.messages.scheduling import Resync
from api_types.messages.signals import (
    FleetSchedulerSignals,
    ModelReplicaSignals,
    receiver_of,
    signals_of,
)
from workflows.entity.handles import handles
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.fleet_scheduler.inbox import Inbox
from workflows.registry import WORKFLOWS

ROOT = Path(__file__).parents[2]

# Each line is a mistake that must fail the type check, with mypy's error message.
MISTAKES = {
    "ModelReplicaSignals.SET_TEMPLATE.request(cache, template)": (
        'expected "EntityRef[ModelReplicaSignals]"'
    ),
    "ModelReplicaSignals.SET_TEMPLATE.request(replica, Delete())": 'expected "SetTemplate"',
    "ModelReplicaSignals.SET_TEMPLATE.request(replica, None)": 'expected "SetTemplate"',
    "ModelReplicaSignals.SCALE": 'has no attribute "SCALE"',
    "EntitySignals.DELETE.request(FLEET_SCHEDULER, Delete())": (
        'expected "EntityRef[EntitySignals]"'
    ),
    (
        "CacheUserSignals.CACHE_CHANGED.broadcast(CacheChanged(cache='a'), "
        "ModelCacheSignals)"
    ): 'expected "type[CacheUserSignals]"',
    "sent = context.signal(replica, ModelReplicaSignals.SET_TEMPLATE, Delete())": (
        'Cannot infer value of type parameter "MessageT"'
    ),
    "sent = context.signal(cache, ModelReplicaSignals.SET_TEMPLATE, template)": (
        'Cannot infer value of type parameter "ReceiverT"'
    ),
    "handles(EntitySignals.DELETE)(takes_template)": (
        'expected "Callable[[Entity[EntityState], Delete], None]"'
    ),
    "handles(ModelReplicaSignals.RESYNC)(takes_resync)": "Resync | None",
}
CORRECT = """
from api_types.messages.caches import CacheChanged
from api_types.messages.delivery import entity
from api_types.messages.entities import Delete, SetTemplate
from api_types.messages.scheduling import PlacementRequest, Resync
from api_types.messages.signals import *
from workflows.entity.context import EntityContext
from workflows.entity.entity import Entity
from workflows.entity.handles import handles
from workflows.entity.state import EntityState

context: EntityContext[EntityState]
template: SetTemplate
replica = entity(ModelReplicaSignals, "ns", "name")
cache = entity(ModelCacheSignals, "ns", "name")

def takes_template(self: Entity[EntityState], message: SetTemplate) -> None: ...
def takes_resync(self: Entity[EntityState], message: Resync) -> None: ...

ModelReplicaSignals.SET_TEMPLATE.request(replica, template)
ModelReplicaSignals.RESYNC.request(replica, None)
EntitySignals.DELETE.request(cache, Delete())
changed = CacheChanged(cache="a")
ModelReplicaSignals.CACHE_CHANGED.broadcast(changed, ModelReplicaSignals, ModelDeploymentSignals)
request = PlacementRequest.model_validate({})
sent = context.signal(FLEET_SCHEDULER, FleetSchedulerSignals.PLACE, request)
handles(ModelReplicaSignals.SET_TEMPLATE)(takes_template)
"""


@pytest.mark.parametrize("owner", WORKFLOWS, ids=lambda owner: owner.kind)
def test_a_workflow_handles_exactly_the_signals_of_its_kind(owner: Any) -> None:
    registered = workflow._Definition.must_from_class(owner).signals
    entries = signals_of(receiver_of(owner.kind))
    assert set(registered) == set(entries)
    for name, entry in entries.items():
        assert str(registered[name].description).startswith(
            f"{entry.message.__name__}: "
        ), f"{name} is not handled as {entry}"


def test_only_the_table_of_signals_constructs_signals_and_handlers() -> None:
    untyped = re.compile(r"workflow\.signal\b|SignalRequest\(|Broadcast\(")
    made = {
        str(path.relative_to(ROOT))
        for folder in ("activities", "client", "fleet_client", "workflows")
        for path in (ROOT / folder).rglob("*.py")
        if untyped.search(path.read_text())
    }
    # A handler is registered in the first; the other repeats a signal that was typed
    # before.
    assert made == {
        "workflows/entity/handles.py",
        "workflows/fleet_scheduler/outgoing.py",
    }


def test_the_scheduler_reads_every_signal_that_it_receives() -> None:
    cache = SchedulerCache(SchedulerState(), lambda: 0)
    assert set(Inbox(cache, logging.getLogger()).readers) == set(
        signals_of(FleetSchedulerSignals)
    )


@pytest.mark.slow
def test_the_type_checker_knows_the_message_of_every_receiver(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(CORRECT + "\n".join(MISTAKES))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", str(snippet)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    first = CORRECT.count("\n") + 1
    problems = dict.fromkeys(range(first, first + len(MISTAKES)), "")
    for line in checked.stdout.splitlines()[:-1]:
        number = int(line.split(":")[1])
        assert number in problems, line
        problems[number] += line
    for (mistake, words), said in zip(MISTAKES.items(), problems.values(), strict=True):
        assert words in said, mistake


class Receiver:
    def __init__(self) -> None:
        self.received: list[Message | None] = []
        self.refused: list[tuple[str, str]] = []
        self.arrivals: Counter[str] = Counter()

    def refuse_malformed(self, message: type[Message], problems: str) -> None:
        self.refused.append((message.__name__, problems))

    @handles(ModelReplicaSignals.SET_LABELS)
    def set_labels(self, message: SetLabels) -> None:
        self.received.append(message)

    @handles(ModelReplicaSignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        self.received.append(message)


@pytest.mark.parametrize(
    "payload",
    [{"labels": {"team": "ml"}}, {"labels": {"team": "ml"}, "newer": "field"}],
)
def test_a_handler_receives_its_parsed_message(payload: dict[str, Any]) -> None:
    receiver = Receiver()
    receiver.set_labels(payload)
    assert (receiver.received, receiver.refused) == (
        [SetLabels(labels={"team": "ml"})],
        [],
    )


@pytest.mark.parametrize(
    "payload", [None, "text", 7, ["no"], {"labels": 3}, {"labels": {"team": None}}]
)
def test_an_invalid_message_is_rejected_with_a_text_and_never_raises(
    payload: Any,
) -> None:
    receiver = Receiver()
    receiver.set_labels(payload)
    ((message, problems),) = receiver.refused
    assert (receiver.received, message) == ([], "SetLabels")
    assert "should be" in problems


def test_any_number_of_arguments_is_accepted_and_only_one_is_read() -> None:
    receiver = Receiver()
    definition = workflow._SignalDefinition.from_fn(Receiver.resync)
    assert definition is not None
    send = definition.bind_fn(receiver)
    for arguments in ([], [None], [{"epoch": 3}], [{"epoch": 4}, "more"]):
        send(*arguments)
    assert receiver.received == [None, None, Resync(epoch=3)]
    assert receiver.refused == [("Resync", "expected one argument, got 2")]
