"""The decisions of a CloudCluster without Temporal.

The test controls the clock and the results of activities.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from activities.clouds.desired.wire import to_wire
from api_types.messages.clouds import (
    CloudAccount,
    CloudObject,
    CloudObjectResult,
    CloudOrder,
    CloudPlan,
    CloudProblem,
    ObjectPhase,
)
from tests.activities.clouds.builders import UID, a_pool, gke
from tests.workflows.cloud_cluster.control_plane import NAME
from workflows.cloud_cluster.calls import PLAN, Calls
from workflows.cloud_cluster.context import CloudContext
from workflows.cloud_cluster.converge import Converge
from workflows.cloud_cluster.entries import Inventory
from workflows.cloud_cluster.state import CloudState, InventoryEntry
from workflows.entity.failures import Failure

T0 = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
ACCOUNT = CloudAccount(
    provider="GKE",
    cluster=NAME,
    cluster_uid=UID,
    secret="gke-default",  # noqa: S106 - the name of a Secret
    region="europe-west4",
    installation="acme",
    project="p",
)
ResultT = TypeVar("ResultT")


class Clock(CloudContext):
    """A context whose clock the test sets."""

    time = T0

    def now(self) -> datetime:
        return self.time


class Begun(Calls):
    """Activities that run until the test ends them."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.ends: dict[
            str, tuple[Callable[[Any], None], Callable[[Failure], None]]
        ] = {}
        self.started: list[str] = []
        self.stopped: list[str] = []

    @property
    def keys(self) -> list[str]:
        return list(self.ends)

    def running(self, key: str) -> bool:
        return key in self.ends

    def start(
        self,
        key: str,
        call: Callable[[], Awaitable[ResultT]],
        done: Callable[[ResultT], None],
        failed: Callable[[Failure], None],
    ) -> None:
        del call
        if key not in self.ends:
            self.ends[key] = (done, failed)
            self.started.append(key)

    def stop(self, key: str) -> None:
        self.stopped.append(key)
        del self.ends[key]

    async def stop_all(self) -> None:
        for key in self.keys:
            self.stop(key)

    def done(self, key: str, result: Any) -> None:
        self.ends.pop(key)[0](result)

    def failed(self, key: str, failure: Failure) -> None:
        self.ends.pop(key)[1](failure)


class Decided:
    """A GKE cluster whose plan is derived from its pools."""

    def __init__(self, *pools: dict[str, Any]) -> None:
        self.state = CloudState(drift_at=(T0 + timedelta(days=300)).isoformat())
        self.context = Clock(NAME, UID, self.state)
        self.calls = Begun()
        self.entries = Inventory(self.context)
        self.converge = Converge(self.context, self.calls, self.entries)
        self.order(*(pools or (a_pool(),)))

    def order(self, *pools: dict[str, Any]) -> None:
        """Order these pools."""
        number = self.state.order.sequence + 1 if self.state.order else 1
        manifest = {
            "spec": {
                "cluster": {"source": "GKE", "gke": {"region": "europe-west4"}},
                "nodePools": list(pools),
            }
        }
        self.state.order = CloudOrder(
            uid=UID, sequence=number, generation=number, manifest=manifest
        )
        self.converge.plan_again()

    def wanted(self, refused: tuple[CloudProblem, ...] = (), **more: Any) -> CloudPlan:
        """Return the plan of the newest order."""
        pools = (
            self.state.order.manifest["spec"]["nodePools"] if self.state.order else []
        )
        objects = [
            to_wire(each, _work(each.kind), _pool(each.key))
            for each in gke(*pools).objects
        ]
        return CloudPlan(
            account=ACCOUNT, objects=objects, refused=list(refused), **more
        )

    def plan(self, plan: CloudPlan | None = None) -> None:
        """Complete the requested plan and run a pass."""
        self.go()
        self.calls.done(PLAN, plan or self.wanted())
        self.go()

    def go(self) -> None:
        """Run a pass and record its timers."""
        self.context.requeue_time = None
        self.converge.update()

    def after(self, delay: timedelta) -> None:
        """Run a pass after this delay."""
        self.context.time += delay
        self.go()

    def end(self, key: str, phase: ObjectPhase, **more: Any) -> None:
        """Complete the work on an object and run a pass."""
        self.calls.done(
            key,
            CloudObjectResult(
                key=key,
                phase=phase,
                facts={"id": key} if phase == "Ready" else {},
                **more,
            ),
        )
        self.go()

    def make_all(self) -> None:
        """Complete the work on all objects."""
        while keys := [key for key in self.calls.keys if not key.startswith("/")]:
            self.end(keys[0], "Ready")

    def entry(self, key: str) -> InventoryEntry:
        """Return the inventory entry of an object."""
        return self.state.inventory[key]

    @property
    def reasons(self) -> list[str]:
        """Return the reasons of all events."""
        return [event.reason for event in self.state.events]


def ready(*pools: dict[str, Any]) -> Decided:
    """Return a cluster that is Ready."""
    cluster = Decided(*pools)
    cluster.plan()
    cluster.make_all()
    assert {entry.phase for entry in cluster.state.inventory.values()} == {"Ready"}
    cluster.calls.started.clear()
    return cluster


def of_key(plan: CloudPlan, key: str, **change: Any) -> CloudPlan:
    """Return a copy of the plan in which one object differs."""
    objects: list[CloudObject] = [
        each.model_copy(update=change) if each.key == key else each
        for each in plan.objects
    ]
    return plan.model_copy(update={"objects": objects})


def _work(kind: str) -> Literal["Quick", "ControlPlane", "NodePool"]:
    return (
        "NodePool"
        if kind == "NodePool"
        else "ControlPlane"
        if kind == "Cluster"
        else "Quick"
    )


def _pool(key: str) -> str:
    return key.removeprefix("pool/") if key.startswith("pool/") else ""
