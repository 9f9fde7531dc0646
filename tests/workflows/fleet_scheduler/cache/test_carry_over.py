"""The state that the scheduler carries over to its next run.

Whatever does not fit is rebuilt.
"""

import base64
import random
import uuid

import pytest
from temporalio import workflow

from api_types.errors import StaleSnapshot
from api_types.limits import SELECTORS_BYTES_MAX
from api_types.messages.scheduling import PlacementRequest, ReportClass
from api_types.names import FLEET_SCHEDULER_ID
from api_types.payloads import limits
from api_types.payloads.packing import unpack
from scheduler.fleet.snapshots import snapshot
from tests.scheduler.builders import alone, ask, cluster, deployment, engine
from tests.workflows.environment.serverless import a_continued_run
from tests.workflows.fleet_scheduler.cache.builders import (
    Clock,
    cache_with,
    carried,
    cycle,
    reopened,
)
from tests.workflows.fleet_scheduler.cycle import LOG
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler.cache import cache_registry, carry_over
from workflows.fleet_scheduler.cache.carry_over import (
    CacheVersion,
    PackedFleet,
    PackPage,
    audit_ledger,
    in_payloads,
    joined,
    newest_answers,
    pack_cache,
)
from workflows.fleet_scheduler.cache.queue import owner_of
from workflows.fleet_scheduler.cache.state import ReceivedSignal
from workflows.fleet_scheduler.controller import SchedulerController
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.orders import SendSchedulerSignals
from workflows.fleet_scheduler.workflow import FleetSchedulerWorkflow


def noise(what: object) -> str:
    """Return an incompressible text that depends only on `what`."""
    return uuid.uuid5(uuid.NAMESPACE_OID, str(what)).hex


def small_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide the maximum payload size by thirty."""
    for limit in ("PAYLOAD_BYTES_MAX", "LIST_BYTES_MAX", "CARRIED_BYTES_MAX"):
        monkeypatch.setattr(limits, limit, getattr(limits, limit) // 30)


def test_everything_is_carried_over_to_the_next_run() -> None:
    clock = Clock()
    made = cache_with(
        clock, cluster("a", 1), cluster("b", 1), policy={"priorityClasses": {"high": 5}}
    )
    cycle(made)
    cycle(
        made,
        ("place", place(deployment(want=3))),
        ("report_class", ReportClass(name="h100", generation=7, spec={})),
    )
    made.answers.record("one", {"epoch": 3})
    made.state.unresponsive = {"modelreplica/ml/lost": ["b"]}
    made.state.unresponsive_since = {"modelreplica/ml/lost": clock.ms}
    made.unanswered = {"preempted": clock.ms}
    made.state.deleting_clusters = {"b": ["ml/x"]}
    made.state.inbox.append(ReceivedSignal("released", {"uid": "later"}))
    kept = made.carried_extras()
    entries = sorted(made.fleet.entries(), key=lambda entry: entry.uid)
    state = carried(made)
    assert (state.inbox, state.unplaced) == ([], {})
    again = reopened(state, clock)
    assert again.carried_extras() == kept
    assert sorted(again.fleet.entries(), key=lambda entry: entry.uid) == entries
    assert again.fleet.options == made.fleet.options
    assert (list(again.reservations.unbound), again.state.inbox) == (
        [entry.uid for entry in entries],
        [("released", {"uid": "later"})],
    )
    assert not again.state.rebuild


def test_a_cache_that_does_not_fit_is_rebuilt_and_the_policy_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 1), policy={"profile": "dense"})
    cycle(made)
    made.state.inbox.append(ReceivedSignal("released", {"uid": "later"}))
    monkeypatch.setattr(limits, "LIST_BYTES_MAX", 10)
    again = reopened(carried(made), clock)
    assert again.state.rebuild
    assert (list(again.fleet.clusters), again.fleet.options.profile) == ([], "dense")
    assert again.state.inbox == [("released", {"uid": "later"})]


def test_a_cache_larger_than_one_payload_is_packed_and_carried_in_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    small_payloads(monkeypatch)
    # Of the space, incompressible names take a third in the fleet, a third besides it,
    # and a fifth in messages.
    made = cache_with(clock, *(cluster(noise(f"cluster {n}"), 1) for n in range(500)))
    monkeypatch.setattr(snapshot, "CLUSTERS_PER_PART", 50)
    made.state.classes = {noise(f"class {n}"): n for n in range(850)}
    made.state.inbox = [
        ReceivedSignal("released", {"uid": noise(n)}) for n in range(500)
    ]
    inbox, extras, clusters = (
        list(made.state.inbox),
        made.carried_extras(),
        sorted(made.fleet.clusters),
    )
    state = carried(made)
    _, second = in_payloads(state)
    assert (bool(second.fleet), bool(second.arrived)) == (True, True)
    again = reopened(state, clock)
    assert not again.state.rebuild
    assert (
        again.carried_extras(),
        again.state.inbox,
        sorted(again.fleet.clusters),
    ) == (extras, inbox, clusters)


def waiting(namespace: str, number: int, size: int) -> PlacementRequest:
    """Return a request with incompressible selectors of this size."""
    source = random.Random(f"{namespace}/{number}")  # noqa: S311  # the same in every run
    texts = [
        base64.urlsafe_b64encode(source.randbytes(600)).decode()
        for _ in range(size // 860)
    ]
    selectors = tuple(
        f'device.attributes["gpu.nvidia.com"].productName == "{text}"' for text in texts
    )
    return place(
        deployment(
            engine("main", alone(ask(*selectors))),
            name=f"d-{number}",
            namespace=namespace,
        )
    )


@pytest.mark.slow
def test_requests_that_do_not_fit_are_dropped_and_requested_again() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 1))
    cycle(made)
    # As large as selectors may be.
    large = [waiting("large", number, SELECTORS_BYTES_MAX) for number in range(60)]
    small = [waiting("small", number, 2_000) for number in range(100)]
    made.state.unplaced = {
        owner_of(request): request for request in (*large[:40], *small)
    }
    made.state.withheld = {owner_of(request): request for request in large[40:]}
    again = reopened(carried(made), clock)
    assert (again.state.rebuild, list(again.fleet.clusters)) == (False, ["a"])
    kept = again.state.unplaced | again.state.withheld
    assert set(map(owner_of, small)) < set(kept)
    left_out = {f"{namespace}/{name}" for namespace, name in again.resyncs}
    assert left_out == set(map(owner_of, (*large, *small))) - set(kept)
    # Requests are carried over as long as they fit.
    assert 20 < len(kept) - len(small) < 40
    (order,) = SchedulerController(again, Inbox(again, LOG), LOG).due()
    assert isinstance(order, SendSchedulerSignals)
    assert {(signal.workflow_id, signal.signal) for signal in order.signals} == {
        (f"modeldeployment/{owner}", "resync") for owner in left_out
    }


@pytest.mark.parametrize("asked_again", [[("ml", "m")], []], ids=["some", "none"])
def test_the_next_run_makes_deployments_request_again_at_once(
    monkeypatch: pytest.MonkeyPatch, asked_again: list[tuple[str, str]]
) -> None:
    made = cache_with(Clock(), cluster("a", 1))
    cycle(made)
    made.request_resync(asked_again)
    monkeypatch.setattr(workflow, "info", lambda: a_continued_run(FLEET_SCHEDULER_ID))
    monkeypatch.setattr(workflow, "memo_value", lambda _, default: default)
    following = FleetSchedulerWorkflow(
        carried(made).model_dump(mode="json", by_alias=True)
    )
    assert list(following.cache.resyncs) == asked_again
    assert following._has_work() == bool(asked_again)


def test_pages_packed_by_different_versions_are_not_combined() -> None:
    pages = [
        PackedFleet(fleet=["a"], pages=2, digest="one"),
        PackedFleet(fleet=["b"], pages=2, digest="two"),
    ]
    assert joined(pages).too_large
    assert joined([pages[0], pages[1].model_copy(update={"digest": "one"})]).fleet == [
        "a",
        "b",
    ]


def test_too_many_messages_cause_a_rebuild_and_the_newest_policy_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_payloads(monkeypatch)
    made = cache_with(Clock(), cluster("a", 1), policy={"profile": "dense"})
    cycle(made)
    released = [ReceivedSignal("released", {"uid": noise(n)}) for n in range(3_000)]
    made.state.inbox = [
        ReceivedSignal("set_policy", {"policy": {"profile": "spread"}}),
        *released,
    ]
    state = carried(made)
    again = reopened(state, Clock())
    assert (again.state.rebuild, again.fleet.clusters) == (True, {})
    assert again.state.inbox == [("set_policy", {"policy": {"profile": "spread"}})]
    assert (again.state.epoch, again.fleet.options.profile) == (
        made.state.epoch,
        "dense",
    )


def test_the_newest_answers_are_carried_over_up_to_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(carry_over, "ANSWERS_CHARACTERS_MAX", 2_000)
    answers = {
        f"request-{i}": {"uid": uuid.UUID(int=i * 7919**9 % 2**128).hex}
        for i in range(200)
    }
    kept = unpack(newest_answers(answers))
    assert list(kept) == list(answers)[-len(kept) :]
    assert 0 < len(kept) < len(answers)


def test_reading_a_wrong_cache_or_version_is_rejected() -> None:
    made = cache_with(Clock(), cluster("a", 1))
    cache_registry.register("run-1", made)
    assert audit_ledger(CacheVersion(run_id="run-1", version=made.fleet.version)) == []
    for version in (
        PackPage(run_id="run-1", version=made.fleet.version + 1),
        PackPage(run_id="run-2", version=made.fleet.version),
    ):
        with pytest.raises(StaleSnapshot, match="is not in this process"):
            pack_cache(version)
