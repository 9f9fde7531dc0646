"""Replicas of an earlier deployment of the name that were terminated with it, message by message and without a server."""

from typing import Any

from api_types.messages.scheduling import ReplicaAccount
from tests.workflows.model_deployment.exchange import ENTRY, NOW, a_controller, named, started, state_of
from workflows.model_deployment.orders import Order, ReadAccounts, Start

ID = "modelreplica/ml/qwen-0"


def account(**fields: Any) -> Any:
    return ReplicaAccount(uid="r", namespace="ml", deployment="qwen", name="qwen-0", cluster="eu", index=0, entry=ENTRY, **fields).wire()


def reads(orders: list[Order]) -> list[ReadAccounts]:
    return [order for order in orders if isinstance(order, ReadAccounts)]


def test_a_deployment_that_is_deleted_starts_them_again_to_be_deleted() -> None:
    controller = a_controller(deletion_timestamp=NOW.isoformat())
    controller.replicas.record_ended([ID])
    controller.next_orders({})
    assert not controller.is_gone
    (read,) = reads(controller.next_orders({}))
    assert read.names == ["qwen-0"]
    controller.replicas.accounts_read(read, {ID: account()}, [])
    assert [payload["uid"] for payload in named(controller.next_orders({}), "delete")] == ["r"]
    # Nothing runs that could take the order.
    state_of(controller).lost["r"] = NOW.isoformat()
    (start,) = [order for order in controller.next_orders({}) if isinstance(order, Start)]
    assert [(replica.uid, replica.restarted, replica.deleting) for replica in start.replicas] == [("r", True, True)]


def test_those_that_are_gone_by_now_are_not() -> None:
    controller = a_controller(deletion_timestamp=NOW.isoformat())
    controller.replicas.record_ended([ID, ID])
    controller.next_orders({})
    (read,) = reads(controller.next_orders({}))
    controller.replicas.accounts_read(read, {ID: account(gone=True)}, [])
    assert started(controller.next_orders({})) == []
    assert state_of(controller).replicas == {}


def test_a_deployment_that_stays_starts_only_what_the_scheduler_has_charged() -> None:
    controller = a_controller()
    controller.replicas.record_ended([ID])
    orders = [*controller.next_orders({}), *controller.next_orders({})]
    assert (reads(orders), started(orders)) == ([], [])
    assert [request["kept"] for request in named(orders, "place")] == [[]]
