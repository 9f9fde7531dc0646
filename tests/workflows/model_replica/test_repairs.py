"""Consecutive repairs of drift wait longer each time, so that a fight over a field costs little.

These tests need no server.
"""

from datetime import timedelta

import pytest

from api_types.messages.cluster_work import Applied
from tests.workflows.environment.serverless import Serverless
from tests.workflows.model_replica.builders import APPLIED, a_replica, observed
from workflows.entity.backoff import DRIFT_MEMORY
from workflows.model_replica.orders import Apply
from workflows.model_replica.workflow import ModelReplicaWorkflow


class Fight:
    """A replica whose Deployment another controller changes after each repair."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = Serverless(monkeypatch, "modelreplica/ml/qwen-eu-0")
        self.replica = ModelReplicaWorkflow(
            a_replica(observed=observed(digest="of another controller"))
        )

    def next_repair(self) -> timedelta:
        """Wait for the next repair and let it succeed; return the time that it took."""
        began = self.time.now
        while True:
            self.replica.context.requeue_time = None
            orders = self.replica.controller.applying.next_orders()
            if orders:
                break
            assert self.replica.context.requeue_time is not None
            self.time.now = self.replica.context.requeue_time
        (order,) = [order for order in orders if isinstance(order, Apply)]
        self.replica.controller.applying.applied(
            order, Applied.model_validate(APPLIED.wire())
        )
        return self.time.now - began


def test_consecutive_repairs_double_their_waits_up_to_five_minutes_and_reset_after_a_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fight = Fight(monkeypatch)
    waits = [fight.next_repair().total_seconds() for _ in range(10)]
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    fight.time.now += DRIFT_MEMORY + timedelta(seconds=1)
    fight.replica.state.drift_since = ""
    assert fight.next_repair().total_seconds() == 2
