"""Replicas of an earlier deployment with the same name that were terminated with it,
message by message and without a server.
"""

from typing import Any

from api_types.messages.entities import ReplicaChanged, StartedReplicas
from api_types.messages.scheduling import ReplicaAccount
from tests.workflows.model_deployment.exchange import (
    ENTRY,
    NOW,
    PLACEMENT,
    a_controller,
    answer,
    named,
    started,
    state_of,
)
from workflows.model_deployment.controller import DeploymentController
from workflows.model_deployment.orders import (
    Order,
    ReadReplicaAccounts,
    StartReplicaWorkflows,
)

ID = "modelreplica/ml/qwen-0"


def account(**fields: Any) -> Any:
    return ReplicaAccount(
        uid="r",
        namespace="ml",
        deployment="qwen",
        name="qwen-0",
        cluster="eu",
        index=0,
        entry=ENTRY,
        **fields,
    ).wire()


def a_start(
    controller: DeploymentController, **placement: Any
) -> StartReplicaWorkflows:
    """Let a placement be started."""
    controller.next_orders({})
    controller.placed(answer(controller, PLACEMENT.model_copy(update=placement)))
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    return start


def reads(orders: list[Order]) -> list[ReadReplicaAccounts]:
    return [order for order in orders if isinstance(order, ReadReplicaAccounts)]


def test_a_deleted_deployment_starts_them_again_to_delete_them() -> None:
    controller = a_controller(deletion_timestamp=NOW.isoformat())
    controller.replicas.record_ended([ID])
    controller.next_orders({})
    assert not controller.is_gone
    (read,) = reads(controller.next_orders({}))
    assert read.names == ["qwen-0"]
    controller.replicas.accounts_read(read, {ID: account()}, [])
    assert [
        payload["uid"] for payload in named(controller.next_orders({}), "delete")
    ] == ["r"]
    # Nothing runs that could receive the order.
    state_of(controller).lost["r"] = NOW.isoformat()
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    assert [
        (replica.uid, replica.restarted, replica.deleting) for replica in start.replicas
    ] == [("r", True, True)]


def test_replicas_that_are_gone_are_not_started_again() -> None:
    controller = a_controller(deletion_timestamp=NOW.isoformat())
    controller.replicas.record_ended([ID, ID])
    controller.next_orders({})
    (read,) = reads(controller.next_orders({}))
    controller.replicas.accounts_read(read, {ID: account(gone=True)}, [])
    assert started(controller.next_orders({})) == []
    assert state_of(controller).replicas == {}


def test_a_remaining_deployment_starts_only_replicas_that_the_scheduler_charges() -> (
    None
):
    controller = a_controller()
    controller.replicas.record_ended([ID])
    orders = [*controller.next_orders({}), *controller.next_orders({})]
    assert (reads(orders), started(orders)) == ([], [])
    assert [request["kept"] for request in named(orders, "place")] == [[]]


def test_a_replica_whose_name_was_reused_is_first_started_again_to_be_deleted() -> None:
    controller = a_controller()
    start = a_start(controller, uid="new")
    (read,) = reads(
        controller.replicas.started(
            start, StartedReplicas(conflicts=["qwen-0"], unfinished=["qwen-0"])
        )
    )
    # This holds even if it is gone. The name is free only when its workflow is
    # complete.
    controller.replicas.accounts_read(read, {ID: account(gone=True)}, [])
    (again,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    assert [
        (replica.uid, replica.restarted, replica.deleting) for replica in again.replicas
    ] == [("r", True, True)]
    assert state_of(controller).replicas["new"].start_after


def test_a_replica_of_another_deployment_is_left_alone() -> None:
    controller = a_controller()
    start = a_start(controller, uid="new")
    (read,) = reads(
        controller.replicas.started(
            start, StartedReplicas(conflicts=["qwen-0"], unfinished=["qwen-0"])
        )
    )
    controller.replicas.accounts_read(
        read, {ID: {**account(), "deployment": "other"}}, []
    )
    assert list(state_of(controller).replicas) == ["new"]


def test_a_completed_replica_is_no_longer_tracked_and_the_scheduler_learns_that_it_is_gone() -> (
    None
):
    controller = a_controller()
    start = a_start(controller)
    orders = controller.replicas.started(
        start, StartedReplicas(conflicts=["qwen-0"], completed=["qwen-0"])
    )
    assert named(orders, "released") == [{"uid": "r", "name": "qwen-0"}]
    assert state_of(controller).replicas == {}
    assert [
        request["kept"] for request in named(controller.next_orders({}), "place")
    ] == [[]]


def test_an_adopted_replica_that_reported_itself_must_report_again() -> None:
    controller = a_controller()
    report = ReplicaChanged(
        name="qwen-0", uid="r", sequence=1, phase="Ready", ready=True, serving=True
    )
    controller.replicas.record_report(report)
    (read,) = reads(controller.next_orders({}))
    controller.replicas.accounts_read(read, {ID: account()}, [])
    assert not state_of(controller).replicas["r"].ready
    assert len(named(controller.next_orders({}), "resync")) == 1


def test_a_late_report_of_an_earlier_run_does_not_hide_that_a_replica_lacks_a_template() -> (
    None
):
    controller = a_controller()
    start = a_start(controller)
    controller.replicas.started(start, StartedReplicas())
    for sequence, generation in ((1, 10), (2, 1)):
        controller.next_orders({})
        controller.replicas.record_report(
            ReplicaChanged(
                name="qwen-0",
                uid="r",
                sequence=sequence,
                phase="Ready",
                generation=generation,
            )
        )
    assert [
        payload["generation"]
        for payload in named(controller.next_orders({}), "set_template")
    ] == [10]
