"""The scheduler survives any signal: it reads or ignores the signal, and decides the next request.

These tests need no server.
"""

import json
import logging
from typing import Any

import pytest

from api_types.messages.scheduling import PlacementRequest
from scheduler import pool_report, snapshot, to_wire
from tests.random_cases import cases, generator
from tests.scheduler.builders import cluster, deployment
from tests.workflows.fleet_scheduler.cycle import run_cycle
from tests.workflows.fleet_scheduler.malformed import (
    MANIFEST,
    a_place,
    an_entry,
    malformed,
    valid_payloads,
)
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.fleet_scheduler.controller import SchedulerController
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.orders import SendSchedulerSignals

NOW = 1_700_000_000_000
NODES = 8
VALID = valid_payloads()
# Every run tries a quarter of the altered messages and a campaign all of them, because
# each costs a decision.
PART = 4


def a_cache() -> SchedulerCache:
    made = SchedulerCache(SchedulerState(), lambda: NOW)
    made.fleet.put_cluster(cluster("eu", NODES))
    made.fleet.put_cluster(cluster("us", NODES))
    return made


def a_request() -> PlacementRequest:
    return place(deployment(name="next"))


def assert_sound(cache: SchedulerCache) -> None:
    """Check that all derived data of the cache can be computed between two cycles, and
    that no replica has a negative charge.
    """
    controller = SchedulerController(
        cache, Inbox(cache, logging.getLogger()), logging.getLogger()
    )
    for order in controller.due():
        if isinstance(order, SendSchedulerSignals):
            # The receivers that a malformed message names do not run.
            controller.sent(order, {signal.workflow_id for signal in order.signals})
    controller.delay()
    cache.next_timeout()
    cache.reservations.expired(cache.now())
    cache.ledger_page("")
    assert cache.fleet.audit() == []
    for name, info in cache.fleet.clusters.items():
        pool_report(cache.fleet, name, NOW)
        assert all(
            free <= max(0, pool.nodes)
            for pool, free in zip(
                info.pools, cache.fleet.free(name).values(), strict=False
            )
        )
    json.dumps(cache.carried_extras())
    snapshot.dump(cache.fleet)


@pytest.mark.random
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "payload"),
    VALID,
    ids=[f"{name}-{number}" for number, (name, _) in enumerate(VALID)],
)
def test_no_malformed_message_stops_the_scheduler(
    name: str, payload: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    request = a_request().wire()
    wanted = list(malformed(payload))
    for description, wrong in generator().sample(
        wanted, min(len(wanted), cases(len(wanted) // PART))
    ):
        cache = a_cache()
        try:
            assert request["requestId"] in [
                decided.request_id
                for decided in run_cycle(cache, (name, wrong), ("place", request))
            ]
            assert_sound(cache)
        except Exception as error:
            raise AssertionError(f"{name}: {description}") from error


@pytest.mark.parametrize(
    ("name", "payload"),
    VALID,
    ids=[f"{name}-{number}" for number, (name, _) in enumerate(VALID)],
)
def test_the_valid_message_is_read(
    name: str, payload: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the test above would alter messages that are ignored as a whole."""
    run_cycle(a_cache(), (name, payload))
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "payload", "problem"),
    [
        (
            "bound",
            {"entries": {"u": {**to_wire(an_entry()), "namespace": "a/b"}}},
            "entries.u: namespace: must be a name of 1 to 253 characters, got 'a/b'",
        ),
        (
            "bound",
            {"entries": {"u": {**to_wire(an_entry()), "reuse": [["h100", -1]]}}},
            "entries.u: reuse: nodes of 'h100': must be between 0 and 1000000, got -1",
        ),
        (
            "report_cluster",
            {"name": "eu", "uid": "u", "sequence": 9, "manifest": {}},
            "InferenceCluster.metadata.name: is required",
        ),
        (
            "report_cluster",
            {
                "name": "eu",
                "uid": "u",
                "sequence": 9,
                "manifest": {**MANIFEST, "spec": {"nodePools": [{}]}},
            },
            "InferenceCluster eu: spec.nodePools[0].name: is required",
        ),
        (
            "report_cluster",
            {"name": "us", "uid": "u", "sequence": 9, "manifest": MANIFEST},
            "metadata.name: must be 'us', the sender of the report; got 'eu'",
        ),
        (
            "place",
            {
                **a_place().wire(),
                "need": {**a_place().need, "policy": {"minAvailable": float("nan")}},
            },
            (
                "invalid DeploymentView: policy.minAvailable: must be a whole number of "
                "64 bits, got nan"
            ),
        ),
        (
            "place",
            {**a_place().wire(), "name": "other"},
            "need: must describe ml/other, the sender of the request; got ml/qwen",
        ),
        (
            "forget",
            {
                "kind": "ModelDeployment",
                "namespace": "a/b",
                "name": "c",
                "uid": "u",
                "gone": True,
            },
            "namespace: must be a name of 1 to 253 characters, got 'a/b'",
        ),
        (
            "forget",
            {"kind": "ModelDeployment", "name": "c", "uid": "u", "gone": True},
            "namespace: must be a name of 1 to 253 characters, got ''",
        ),
        (
            "bound",
            {"entries": {"u": {**to_wire(an_entry()), "index": "1"}}},
            "entries.u: invalid LedgerEntry: index: must be a whole number of 64 bits, got '1'",
        ),
    ],
    ids=[
        "a name that is no part of a workflow id",
        "a negative count",
        "no manifest",
        "pool without a name",
        "of another cluster",
        "nan",
        "of another deployment",
        "the end of a deployment whose name is none",
        "the end of a deployment without a namespace",
        "text for a number",
    ],
)
def test_an_ignored_message_is_logged_with_its_field(
    name: str, payload: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache = a_cache()
    before = to_wire(cache.fleet.cluster("eu"))
    run_cycle(cache, (name, payload))
    assert [vars(record)["problems"] for record in caplog.records] == [problem]
    assert to_wire(cache.fleet.cluster("eu")) == before
    assert not cache.clusters["eu"].uid  # a later report of the same sequence is read


def test_readable_entries_are_charged_besides_an_unreadable_one() -> None:
    cache, entry = a_cache(), an_entry()
    run_cycle(cache, ("bound", {"entries": {"other": {}, entry.uid: to_wire(entry)}}))
    assert [found.uid for found in cache.fleet.entries()] == [entry.uid]


def test_a_null_policy_in_a_request_counts_as_none() -> None:
    cache, request = a_cache(), a_request()
    (decided,) = run_cycle(
        cache, ("place", {**request.wire(), "need": {**request.need, "policy": None}})
    )
    assert decided.request_id == request.request_id
