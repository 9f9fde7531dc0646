"""What an InferenceCluster orders of its CloudCluster, and what it takes from its reports, without Temporal."""

from datetime import UTC, datetime
from typing import Any

import pytest

from api_types.messages.clouds import CloudDelete, CloudObject, CloudOrder, CloudReport, ClusterPhase
from api_types.messages.cluster_work import RemainingObject
from api_types.messages.delivery import EntityRef, Signal
from api_types.messages.entities import RetryNow
from tests.activities.clouds.builders import a_pool
from tests.workflows.cloud_cluster.decided import ACCOUNT
from workflows.entity.context import EntityContext
from workflows.inference_cluster.cloud import CloudOrders
from workflows.inference_cluster.cloud_state import CloudLink
from workflows.inference_cluster.stack.calls import BackgroundCalls
from workflows.inference_cluster.state import ClusterState

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
SPEC = {"cluster": {"source": "GKE", "gke": {"region": "europe-west4"}}, "nodePools": [a_pool()]}


class Sending(EntityContext[ClusterState]):
    """A context that keeps what is sent, to a CloudCluster that runs."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__("InferenceCluster", state, lambda: None, "inferencecluster/prod", lambda: NOW)
        self.sent: list[Any] = []
        self.runs = True

    async def signal_recorded(self, to: EntityRef[Any], signal: Signal[Any, Any], message: Any) -> bool:
        del to, signal
        self.sent.append(message)
        return self.runs


def of_cluster() -> tuple[CloudOrders, Sending]:
    """The orders of a cluster that is new."""
    context = Sending(ClusterState(uid="u", spec=SPEC, generation=1))
    return CloudOrders(context, BackgroundCalls(context)), context


def a_report(sequence: int, uid: str = "u", phase: ClusterPhase = "Ready", **more: Any) -> CloudReport:
    return CloudReport(uid=uid, sequence=sequence, phase=phase, **more)


async def test_a_retry_while_a_lost_cloud_cluster_deletes_reaches_it() -> None:
    orders, context = of_cluster()
    await orders.follow()
    orders.repeat()
    await orders.delete()
    context.state.cloud.retry = True
    await orders.retry()
    await orders.retry()
    assert [type(message) for message in context.sent] == [CloudOrder, CloudDelete, RetryNow]
    assert orders.receivers == ["cloud/prod/u"], "the end of its CloudCluster is noticed"


async def test_a_retry_that_could_not_be_sent_yet_is_sent_by_the_next_run() -> None:
    _, before = of_cluster()
    before.state.cloud.number, before.state.cloud.retry = 5, True
    context = Sending(ClusterState.model_validate(before.state.model_dump(by_alias=True)))
    await CloudOrders(context, BackgroundCalls(context)).retry()
    assert ([type(message) for message in context.sent], context.state.cloud.retry) == ([RetryNow], False)


async def test_case_77_an_order_tells_what_was_pinned_and_ready_and_is_sent_no_second_time_for_that() -> None:
    orders, context = of_cluster()
    await orders.follow()
    orders.reported(a_report(1, objects=9, account=ACCOUNT))
    orders.reported(a_report(2, objects=9, account=None))
    await orders.follow()
    assert len(context.sent) == 1
    orders.repeat()
    await orders.follow()
    assert (context.sent[-1].account, context.sent[-1].was_usable, context.sent[-1].was_ready) == (ACCOUNT, False, False)
    orders.reported(a_report(3, objects=9, account=ACCOUNT, usable=True))
    orders.reported(a_report(4, objects=9, account=ACCOUNT.model_copy(update={"installation": "other"}), usable=True, ready=True))
    await orders.delete()
    told = context.sent[-1].order
    assert (told.account, told.was_usable, told.was_ready) == (ACCOUNT, True, True), "the first one that was pinned"


async def test_case_77_an_order_tells_what_was_removed_and_still_there_until_that_is_reported_gone() -> None:
    orders, context = of_cluster()
    removed = [CloudObject(key="pool/b", kind="NodePool", name="b", pool="b")]
    await orders.follow()
    orders.reported(a_report(1, objects=9, removed=removed))
    await orders.follow()
    assert len(context.sent) == 1, "that alone is no reason to order again"
    # It lost its state, and knows nothing before its first plan.
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


def test_case_77_an_account_that_is_not_pinned_yet_is_not_told() -> None:
    orders, context = of_cluster()
    orders.reported(a_report(1, objects=9, account=ACCOUNT.model_copy(update={"installation": ""})))
    assert context.state.cloud.pinned is None


def test_a_step_that_is_given_up_is_the_emptying_alone() -> None:
    orders, context = of_cluster()
    context.state.cloud.account = ACCOUNT
    context.state.cloud.remaining = [RemainingObject(id="v1/Service/ml/lb", why="waits")]
    context.state.forced = "step"
    assert orders.empty()
    assert (context.state.forced, [each.name for each in context.state.left_behind]) == ("", ["lb"])


@pytest.mark.parametrize(("kinds", "said"), [(("PersistentVolume",), True), (("PersistentVolume", "PersistentVolumeClaim"), False)])
def test_a_volume_that_its_driver_cannot_delete_is_left_by_force(kinds: tuple[str, ...], said: bool) -> None:
    orders, context = of_cluster()
    context.state.cloud.remaining = [RemainingObject(id=f"v1/{kind}/ml/pvc-1") for kind in kinds]
    assert ("--force` leaves it" in orders._emptying()) == said


async def test_a_cluster_that_was_ordered_is_deleted_though_nothing_was_reported_yet() -> None:
    orders, context = of_cluster()
    await orders.follow()
    orders.repeat()
    assert not await orders.delete()
    assert [type(message) for message in context.sent] == [CloudOrder, CloudDelete]


async def test_case_72_a_cluster_that_was_never_ordered_is_gone() -> None:
    orders, context = of_cluster()
    assert (await orders.delete(), context.sent, orders.receivers) == (True, [], [])


async def test_case_77_a_cloud_cluster_that_lost_its_state_twice_is_told_what_there_may_be() -> None:
    orders, context = of_cluster()
    await orders.follow()
    orders.reported(a_report(1, objects=9))
    orders.reported(a_report(2, objects=0, message="CredentialsInvalid: there is no Secret"))
    await orders.delete()
    assert context.sent[-1].order is not None


async def test_case_72_where_nothing_was_made_no_order_goes_with_the_deletion() -> None:
    orders, context = of_cluster()
    await orders.follow()
    orders.reported(a_report(1, phase="Preflight"))
    await orders.delete()
    assert context.sent[-1].order is None


def test_a_report_that_is_sent_again_changes_nothing() -> None:
    orders, context = of_cluster()
    assert orders.reported(a_report(1, objects=3))
    version = context.state.resource_version
    assert not orders.reported(a_report(2, objects=3))
    assert (context.state.cloud.report, context.state.resource_version) == (a_report(2, objects=3), version)
    assert not orders.reported(a_report(2, objects=4)), "an older one"


def test_what_an_earlier_cluster_of_the_name_still_has_is_named() -> None:
    orders, context = of_cluster()
    assert not orders.reported(a_report(1, uid="before", objects=9))
    assert context.state.cloud == CloudLink()
    assert [(event.type, event.reason) for event in context.state.events] == [("Warning", "EarlierCluster")]
    assert "cloud/prod/before keeps 9 objects" in context.state.events[0].message
    orders.reported(a_report(2, uid="earlier", phase="Deleting"))
    assert len(context.state.events) == 1, "it goes already"


async def test_what_an_abandoned_cluster_leaves_is_listed() -> None:
    orders, context = of_cluster()
    await orders.follow()
    orders.reported(a_report(1, phase="Deleted", leftovers=["cluster (Cluster prod-1) prod-1"]))
    assert await orders.delete()
    left = [(each.kind, each.name, each.location) for each in context.state.left_behind]
    assert left == [("CloudObject", "cluster (Cluster prod-1) prod-1", "prod")]
    assert context.state.events[-1].reason == "LeftAtCloud"


@pytest.mark.parametrize(
    ("runs", "deleting", "said"),
    [(True, "", False), (False, "", True), (False, "2026-01-01T00:00:00Z", False)],
    ids=["it runs", "it has ended", "it has ended, as was wanted"],
)
async def test_a_cloud_cluster_that_has_ended_is_an_event_of_a_cluster_that_is_wanted(*, runs: bool, deleting: str, said: bool) -> None:
    orders, context = of_cluster()
    context.runs, context.state.deletion_timestamp = runs, deleting
    await orders.follow()
    told = "everything at the cloud was deleted or given up; delete the cluster"
    events = [(event.type, event.reason, event.message) for event in context.state.events]
    assert events == ([("Warning", "CloudClusterGone", told)] if said else [])


async def test_orders_and_deletions_are_numbered_in_turn_and_repeated_only_when_they_differ() -> None:
    orders, context = of_cluster()
    await orders.follow()
    await orders.follow()
    for _ in range(2):
        assert not await orders.delete()
    assert [type(message) for message in context.sent] == [CloudOrder, CloudDelete]
    first, second = (message.sequence for message in context.sent)
    assert 0 < first < second
    (condition,) = context.state.conditions
    told = "waits until everything at the cloud is deleted"
    assert (condition.type, condition.reason, condition.message) == ("Deleting", "DeletingCloudCluster", told)
    orders.reported(a_report(1, phase="Deleting", message="x: no", waits_for="deletes the network"))
    await orders.delete()
    (condition,) = context.state.conditions
    assert condition.message == "x: no; deletes the network"
