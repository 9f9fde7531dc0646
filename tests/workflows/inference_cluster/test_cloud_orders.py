"""The orders of an InferenceCluster to its CloudCluster, and its use of the reports,
without Temporal.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from api_types.messages.clouds import (
    CloudDelete,
    CloudObject,
    CloudObjectState,
    CloudOrder,
    CloudReport,
    ClusterPhase,
)
from api_types.messages.cluster_work import RemainingObject
from api_types.messages.delivery import EntityRef, Signal
from api_types.messages.entities import RetryNow
from api_types.resources.status import EventRecord
from tests.activities.clouds.builders import L4, a_pool
from tests.workflows.cloud_cluster.decided import ACCOUNT
from workflows.entity.context import EntityContext
from workflows.inference_cluster.cloud import CloudOrders
from workflows.inference_cluster.cloud_state import CloudLink
from workflows.inference_cluster.spec import class_names
from workflows.inference_cluster.stack.calls import BackgroundCalls
from workflows.inference_cluster.state import ClusterState, KnownClass
from workflows.inference_cluster.status import status_fields

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
SPEC = {
    "cluster": {"source": "GKE", "gke": {"region": "europe-west4"}},
    "nodePools": [a_pool()],
}


class Sending(EntityContext[ClusterState]):
    """A context that records the messages to a running CloudCluster."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__(
            "InferenceCluster",
            state,
            lambda: None,
            "inferencecluster/prod",
            lambda: NOW,
        )
        self.sent: list[Any] = []
        self.runs = True

    async def signal_recorded(
        self, to: EntityRef[Any], signal: Signal[Any, Any], message: Any
    ) -> bool:
        del to, signal
        self.sent.append(message)
        return self.runs


def of_cluster() -> tuple[CloudOrders, Sending]:
    """Return the orders of a new cluster."""
    context = Sending(ClusterState(uid="u", spec=SPEC, generation=1))
    return CloudOrders(context, BackgroundCalls(context)), context


def a_report(
    sequence: int, uid: str = "u", phase: ClusterPhase = "Ready", **more: Any
) -> CloudReport:
    return CloudReport(uid=uid, sequence=sequence, phase=phase, **more)


async def test_an_order_waits_for_the_report_of_a_class_that_exists() -> None:
    orders, context = of_cluster()
    (name,) = class_names(context.state)
    context.state.registered_classes = [name]
    await orders.follow()
    assert context.sent == []
    context.state.classes[name] = KnownClass(generation=1, spec=L4)
    await orders.follow()
    assert [order.classes for order in context.sent] == [{name: L4}]


async def test_a_class_that_does_not_exist_delays_no_order() -> None:
    orders, context = of_cluster()
    await orders.follow()
    assert [order.classes for order in context.sent] == [{}]


async def test_a_retry_reaches_a_lost_cloud_cluster_that_deletes() -> None:
    orders, context = of_cluster()
    await orders.follow()
    orders.repeat()
    await orders.delete()
    context.state.cloud.retry = True
    await orders.retry()
    await orders.retry()
    assert [type(message) for message in context.sent] == [
        CloudOrder,
        CloudDelete,
        RetryNow,
    ]
    assert orders.receivers == ["cloud/prod/u"], (
        "the end of its CloudCluster is noticed"
    )


async def test_an_unsent_retry_is_sent_by_the_next_run() -> None:
    _, before = of_cluster()
    before.state.cloud.number, before.state.cloud.retry = 5, True
    context = Sending(
        ClusterState.model_validate(before.state.model_dump(by_alias=True))
    )
    await CloudOrders(context, BackgroundCalls(context)).retry()
    assert ([type(message) for message in context.sent], context.state.cloud.retry) == (
        [RetryNow],
        False,
    )


async def test_an_order_contains_the_pinned_and_ready_state_and_is_not_repeated_for_it() -> (
    None
):
    orders, context = of_cluster()
    await orders.follow()
    orders.reported(a_report(1, objects=9, account=ACCOUNT))
    orders.reported(a_report(2, objects=9, account=None))
    await orders.follow()
    assert len(context.sent) == 1
    orders.repeat()
    await orders.follow()
    assert (
        context.sent[-1].account,
        context.sent[-1].was_usable,
        context.sent[-1].was_ready,
    ) == (ACCOUNT, False, False)
    orders.reported(a_report(3, objects=9, account=ACCOUNT, usable=True))
    orders.reported(
        a_report(
            4,
            objects=9,
            account=ACCOUNT.model_copy(update={"installation": "other"}),
            usable=True,
            ready=True,
        )
    )
    await orders.delete()
    told = context.sent[-1].order
    assert (told.account, told.was_usable, told.was_ready) == (ACCOUNT, True, True), (
        "the first one that was pinned"
    )


POOL = CloudObjectState(key="pool/gpu", kind="NodePool", name="gpu", pool="gpu")
READY = POOL.model_copy(update={"ready": True, "was_ready": True})


async def test_an_order_names_the_objects_that_were_never_ready() -> None:
    orders, context = of_cluster()
    await orders.follow()
    other = READY.model_copy(update={"key": "pool/b", "pool": "b"})
    refused = CloudObjectState(pool="c", reason="InvalidNodePool")
    orders.reported(a_report(1, objects=9, ready=True, states=[POOL, other, refused]))
    # The CloudCluster lost its state, and knows nothing before its first plan.
    orders.reported(a_report(2, phase="Preflight"))
    await orders.follow()
    assert len(context.sent) == 1, "that alone is no reason to order again"
    orders.repeat()
    await orders.follow()
    told = context.sent[-1]
    assert (told.was_ready, told.never_ready) == (True, ["pool/gpu"])


def test_the_events_of_the_cloud_cluster_are_among_those_of_its_cluster() -> None:
    orders, context = of_cluster()
    context.record_event("Normal", "Created", "")

    def event(reason: str, minute: int, count: int = 1) -> EventRecord:
        last = f"2026-01-05T11:{minute}:00Z"
        return EventRecord(reason=reason, last=last, count=count)

    assert orders.reported(a_report(1, events=[event("A", 10), event("B", 11)]))
    assert orders.reported(a_report(2, events=[event("A", 12, count=2)]))
    assert not orders.reported(a_report(3)), "nothing changed"
    shown = status_fields("prod", context.state)["events"]
    assert [(each["reason"], each["count"]) for each in shown] == [
        ("B", 1),
        ("A", 2),
        ("Created", 1),
    ]


async def test_an_order_lists_removed_objects_until_they_are_reported_gone() -> None:
    orders, context = of_cluster()
    removed = [CloudObject(key="pool/b", kind="NodePool", name="b", pool="b")]
    await orders.follow()
    orders.reported(a_report(1, objects=9, removed=removed))
    await orders.follow()
    assert len(context.sent) == 1, "that alone is no reason to order again"
    # The CloudCluster lost its state, and knows nothing before its first plan.
    orders.reported(a_report(2, phase="Preflight"))
    orders.repeat()
    await orders.follow()
    assert context.sent[-1].removed == removed
    orders.reported(a_report(3, objects=9, phase="Deleting"))
    await orders.delete()
    assert context.sent[-1].order.removed == removed
    orders.reported(a_report(4, objects=9))
    orders.repeat()
    await orders.follow()
    assert context.sent[-1].removed is None


def test_an_unpinned_account_is_not_sent() -> None:
    orders, context = of_cluster()
    orders.reported(
        a_report(1, objects=9, account=ACCOUNT.model_copy(update={"installation": ""}))
    )
    assert context.state.cloud.pinned is None


def test_only_the_emptying_step_can_be_skipped() -> None:
    orders, context = of_cluster()
    context.state.cloud.account = ACCOUNT
    context.state.cloud.remaining = [
        RemainingObject(id="v1/Service/ml/lb", why="waits")
    ]
    context.state.forced = "step"
    assert orders.empty()
    assert (
        context.state.forced,
        [each.name for each in context.state.left_behind],
    ) == ("", ["lb"])


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (("PersistentVolume",), True),
        (("PersistentVolume", "PersistentVolumeClaim"), False),
    ],
)
def test_a_forced_deletion_leaves_a_volume_that_its_driver_cannot_delete(
    kinds: tuple[str, ...], said: bool
) -> None:
    orders, context = of_cluster()
    context.state.cloud.remaining = [
        RemainingObject(id=f"v1/{kind}/ml/pvc-1") for kind in kinds
    ]
    assert ("leave them behind" in orders._emptying()) == said


async def test_an_ordered_cluster_is_deleted_though_it_never_reported() -> None:
    orders, context = of_cluster()
    await orders.follow()
    orders.repeat()
    assert not await orders.delete()
    assert [type(message) for message in context.sent] == [CloudOrder, CloudDelete]


async def test_a_cluster_that_was_never_ordered_is_gone_at_once() -> None:
    orders, context = of_cluster()
    assert (await orders.delete(), context.sent, orders.receivers) == (True, [], [])


async def test_a_cloud_cluster_that_lost_its_state_twice_gets_the_possible_objects() -> (
    None
):
    orders, context = of_cluster()
    await orders.follow()
    orders.reported(a_report(1, objects=9))
    orders.reported(
        a_report(2, objects=0, message="CredentialsInvalid: there is no Secret")
    )
    await orders.delete()
    assert context.sent[-1].order is not None


async def test_a_deletion_has_no_order_if_nothing_was_created() -> None:
    orders, context = of_cluster()
    await orders.follow()
    orders.reported(a_report(1, phase="Preflight"))
    await orders.delete()
    assert context.sent[-1].order is None


def test_a_repeated_report_changes_nothing() -> None:
    orders, context = of_cluster()
    assert orders.reported(a_report(1, objects=3))
    version = context.state.resource_version
    assert not orders.reported(a_report(2, objects=3))
    assert (context.state.cloud.report, context.state.resource_version) == (
        a_report(2, objects=3),
        version,
    )
    assert not orders.reported(a_report(2, objects=4)), "an older one"


def test_objects_of_an_earlier_cluster_with_the_name_are_listed() -> None:
    orders, context = of_cluster()
    assert not orders.reported(a_report(1, uid="before", objects=9))
    assert context.state.cloud == CloudLink()
    assert [(event.type, event.reason) for event in context.state.events] == [
        ("Warning", "EarlierCluster")
    ]
    assert (
        "cloud/prod/before still has 9 cloud objects" in context.state.events[0].message
    )
    orders.reported(a_report(2, uid="earlier", phase="Deleting"))
    assert len(context.state.events) == 1, "it goes already"


async def test_objects_of_an_abandoned_cluster_are_listed() -> None:
    orders, context = of_cluster()
    await orders.follow()
    orders.reported(
        a_report(1, phase="Deleted", leftovers=["cluster (Cluster prod-1) prod-1"])
    )
    assert await orders.delete()
    left = [(each.kind, each.name, each.location) for each in context.state.left_behind]
    assert left == [("CloudObject", "cluster (Cluster prod-1) prod-1", "prod")]
    assert context.state.events[-1].reason == "LeftAtCloud"


@pytest.mark.parametrize(
    ("runs", "deleting", "said"),
    [(True, "", False), (False, "", True), (False, "2026-01-01T00:00:00Z", False)],
    ids=["it runs", "it has ended", "it has ended, as was wanted"],
)
async def test_the_end_of_a_wanted_cloud_cluster_is_an_event(
    *, runs: bool, deleting: str, said: bool
) -> None:
    orders, context = of_cluster()
    context.runs, context.state.deletion_timestamp = runs, deleting
    await orders.follow()
    told = "all cloud objects were deleted or abandoned; delete the cluster"
    events = [
        (event.type, event.reason, event.message) for event in context.state.events
    ]
    assert events == ([("Warning", "CloudClusterGone", told)] if said else [])


async def test_orders_and_deletions_are_numbered_and_repeated_only_if_they_differ() -> (
    None
):
    orders, context = of_cluster()
    await orders.follow()
    await orders.follow()
    for _ in range(2):
        assert not await orders.delete()
    assert [type(message) for message in context.sent] == [CloudOrder, CloudDelete]
    first, second = (message.sequence for message in context.sent)
    assert 0 < first < second
    (condition,) = context.state.conditions
    told = "waits until all cloud objects are deleted"
    assert (condition.type, condition.reason, condition.message) == (
        "Deleting",
        "DeletingCloudCluster",
        told,
    )
    orders.reported(
        a_report(1, phase="Deleting", message="x: no", waits_for="deletes the network")
    )
    await orders.delete()
    (condition,) = context.state.conditions
    assert condition.message == "x: no; deletes the network"
