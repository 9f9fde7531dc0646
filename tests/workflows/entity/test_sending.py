"""Signals to many entities are sent in batches, and missing entities are searched for
ever more rarely.

These tests need no server.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow

from api_types.messages.delivery import SignalBatch, SignalBatchResult, SignalRequest
from api_types.payloads.limits import PAYLOAD_BYTES_MAX, wire_size
from workflows.entity import periods
from workflows.entity.calls import activity_options
from workflows.entity.calls.sending import SIGNALS_MAX, send_all
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.fleet_scheduler.calls import Announcer, carry_out
from workflows.fleet_scheduler.controller import SchedulerController
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.orders import SendSchedulerSignals

SIGNALS = [
    SignalRequest(
        workflow_id=f"modeldeployment/ml/d{number:02}",
        signal="placed",
        payload="x" * 100_000,
    )
    for number in range(25)
]


class Calls:
    """Record the batches. The first receiver of each batch does not run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[SignalBatch] = []
        monkeypatch.setattr(workflow, "execute_activity_method", self._execute)
        monkeypatch.setattr(workflow, "execute_local_activity_method", self._execute)

    async def _execute(
        self, method: Any, batch: SignalBatch, **_: Any
    ) -> SignalBatchResult:
        assert method.__name__ == "signal_many"
        self.batches.append(batch)
        return SignalBatchResult(missing=[batch.signals[0].workflow_id])

    def assert_all_fit(self) -> None:
        assert [signal for batch in self.batches for signal in batch.signals] == SIGNALS
        assert max(map(wire_size, self.batches)) <= PAYLOAD_BYTES_MAX

    @property
    def missing(self) -> list[str]:
        return [batch.signals[0].workflow_id for batch in self.batches]


def test_a_call_ends_within_its_timeout_on_a_slow_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = Calls(monkeypatch)
    receivers = [f"modeldeployment/ml/m-{number}" for number in range(1_001)]
    requests = [
        SignalRequest(workflow_id=receiver, signal="resync") for receiver in receivers
    ]
    asyncio.run(send_all(requests, "resync"))
    assert [len(batch.signals) for batch in calls.batches] == [500, 500, 1]
    timeout = activity_options.ENTITY_BATCH["start_to_close_timeout"]
    assert timeout is not None
    assert timeout >= timedelta(seconds=SIGNALS_MAX / 10)


@pytest.mark.parametrize("local", [True, False])
def test_batches_of_an_entity_fit_a_payload_in_order_and_report_all_missing_receivers(
    monkeypatch: pytest.MonkeyPatch, *, local: bool
) -> None:
    calls = Calls(monkeypatch)
    missing = asyncio.run(send_all(SIGNALS, "answer", local=local))
    calls.assert_all_fit()
    assert missing == calls.missing
    assert len(missing) > 2


def test_batches_of_the_scheduler_fit_a_payload_in_order_and_report_all_missing_receivers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, forgotten = Calls(monkeypatch), list[str]()
    cache = SchedulerCache(SchedulerState(), lambda: 0)
    controller = SchedulerController(
        cache, Inbox(cache, workflow.logger), workflow.logger
    )
    monkeypatch.setattr(
        controller, "sent", lambda _, missing: forgotten.extend(sorted(missing))
    )
    asyncio.run(
        carry_out(
            [SendSchedulerSignals(SIGNALS, "answer")],
            controller,
            Announcer(cache.state),
        )
    )
    calls.assert_all_fit()
    assert forgotten == calls.missing


def test_missing_receivers_are_searched_for_ever_more_rarely_without_history_events() -> (
    None
):
    policy = activity_options.awaiting()["retry_policy"]
    assert policy
    assert (policy.initial_interval, policy.maximum_interval) == (
        periods.AWAIT_FIRST,
        periods.AWAIT_LONGEST,
    )
    assert (policy.backoff_coefficient, policy.maximum_attempts) == (2.0, 0)
    assert periods.AWAIT_LONGEST.total_seconds() == 15 * 60


@pytest.mark.parametrize(
    "name",
    ["CONNECT", "WATCH", "APPLY", "TEARDOWN_STEP", "LAST_TEARDOWN_STEP", "CACHE_CALL"],
)
def test_a_cluster_task_that_no_worker_takes_ends(name: str) -> None:
    config = getattr(activity_options, name).config
    assert config["schedule_to_start_timeout"] <= activity_options.SLOT_WAIT
