"""A ModelReplica outside Temporal.

Its controller with a clock, scripted results, and its orders.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from api_types.messages.cluster_work import Applied, RemainingObject, TeardownStepResult
from api_types.messages.entities import StartReplica
from tests.workflows.model_replica.builders import APPLIED
from workflows.entity.conditions import condition_of
from workflows.entity.context import EntityContext
from workflows.entity.failures import Failure
from workflows.model_replica.controller import ModelReplicaController
from workflows.model_replica.orders import (
    Apply,
    DeleteObjects,
    LeaveCache,
    Order,
    ReadClusterMemo,
    SendReplicaSignal,
)
from workflows.model_replica.state import ModelReplicaState

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
NO_ANSWER = Failure("ClusterUnreachable", "cluster eu: no answer")
DONE = TeardownStepResult()
SCHEDULER = "fleetscheduler/default"
QWEN = "modeldeployment/ml/qwen"
URL = "http://10.0.0.1/ml/qwen-eu-0/v1"


@dataclass
class Replica:
    """A replica outside Temporal.

    `results` has the results of its deletions in order, and `apply_failures` those of
    its applies. Afterwards all succeed, applies with `applied`.
    """

    state: ModelReplicaState
    results: list[TeardownStepResult | Failure] = field(default_factory=list)
    memo: Any = None
    last_memo: Any = None
    apply_failures: list[Failure] = field(default_factory=list)
    apply_reason: str = ""
    applied: Applied = APPLIED
    now: datetime = BEGINNING
    orders: list[Order] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context = EntityContext(
            "ModelReplica",
            self.state,
            lambda: None,
            "modelreplica/ml/qwen-eu-0",
            lambda: self.now,
        )
        self.controller = ModelReplicaController(self.context)

    def delete(self) -> "Replica":
        self.state.deletion_timestamp = "2026-01-01T00:00:00Z"
        self.controller.retry()
        return self

    def step(self) -> list[Order]:
        """Run one pass in which all orders complete at once."""
        before = len(self.orders)
        self.carry_out_all(self.controller.apply)
        if self.state.deleting:
            self.carry_out_all(self.controller.tear_down)
        else:
            self.controller.conclude()
        self.carry_out_all(self.controller.report)
        return self.orders[before:]

    def carry_out_all(self, decide: Callable[[], list[Order]]) -> None:
        while orders := decide():
            for order in orders:
                self.orders.append(order)
                self.carry_out(order)

    def carry_out(self, order: Order) -> None:
        match order:
            case SendReplicaSignal():
                self.controller.reports.sent(order, found=True)
            case ReadClusterMemo():
                if self.memo or not self.controller.cluster.last_memo_read(
                    self.last_memo
                ):
                    self.controller.memo_read(self.memo)
            case Apply() if self.apply_failures:
                self.controller.applying.failed(
                    self.apply_failures.pop(0), self.apply_reason
                )
            case Apply():
                self.controller.applying.applied(order, self.applied)
            case DeleteObjects():
                result = self.results.pop(0) if self.results else DONE
                if isinstance(result, Failure):
                    self.controller.teardown.attempt_failed(result)
                else:
                    self.controller.teardown.attempted(result)
            case LeaveCache():
                pass

    def deletions(self) -> list[int]:
        return [
            order.request.number
            for order in self.orders
            if isinstance(order, DeleteObjects)
        ]

    def signals(self) -> list[tuple[str, str]]:
        """Return the receivers and the signals in order, with the phase of each report."""
        sent = [
            order.signal
            for order in self.orders
            if isinstance(order, SendReplicaSignal)
        ]
        return [
            (signal.workflow_id, signal.payload.get("phase", signal.signal))
            for signal in sent
        ]

    def deleting(self) -> tuple[str, str]:
        return self.condition("Deleting")[1:]

    def condition(self, kind: str) -> tuple[str, str, str]:
        found = condition_of(self.state.conditions, kind)
        assert found
        return found.status, found.reason, found.message

    def events(self, reason: str) -> list[tuple[str, int]]:
        """Return the messages of the events with this reason, and their counts."""
        return [
            (event.message, event.count)
            for event in self.state.events
            if event.reason == reason
        ]

    def endpoints(self) -> list[str]:
        """Return the endpoints in the reports to the deployment, in order."""
        sent = [
            order.signal
            for order in self.orders
            if isinstance(order, SendReplicaSignal)
        ]
        return [
            signal.payload["endpoint"] for signal in sent if signal.workflow_id == QWEN
        ]


def a_start(**fields: Any) -> ModelReplicaState:
    """Return the state that a replica starts with."""
    start = {
        "uid": "u",
        "namespace": "ml",
        "name": "qwen-eu-0",
        "deployment": "qwen",
        "deployment_uid": "d",
        "cluster": "eu",
        "index": 0,
    }
    return ModelReplicaState(
        start=StartReplica(
            **{
                **start,
                "generation": 1,
                "spec": {"engines": [{"name": "main"}]},
                **fields,
            }
        )
    )


def remaining(*ids: str) -> TeardownStepResult:
    return TeardownStepResult(remaining=[RemainingObject(id=name) for name in ids])
