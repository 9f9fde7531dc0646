"""A signal starts its receiver if needed, and each start of a replica has its own result.

The answers of the server are staged.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.messaging.sending import (
    ensure_directory,
    ensure_upgrades,
    send_signal,
    start_replicas,
)
from api_types.messages.delivery import SignalRequest
from api_types.messages.entities import StartedReplicas, StartReplica
from api_types.payloads.unreadable import UnreadablePayload


class Server:
    """Records the started workflows."""

    def __init__(self) -> None:
        self.started: list[tuple[str, dict[str, str]]] = []

    async def start_workflow(self, kind: str, _argument: None, **options: Any) -> None:
        attributes = options["search_attributes"]
        self.started.append((kind, {pair.key.name: pair.value for pair in attributes}))


def attributes(**values: str) -> dict[str, str]:
    return {f"Modelplane{name}": value for name, value in values.items()}


async def test_a_workflow_started_by_a_signal_has_its_kind_name_and_phase() -> None:
    server = Server()
    client = cast("Client", server)
    request = SignalRequest(workflow_id="x", signal="s", payload={})
    await ensure_upgrades(client, request)
    await ensure_directory(client, "ml", request)
    upgrades = attributes(Kind="StackUpgrades", Name="default", Phase="Ready")
    directory = attributes(
        Kind="EndpointDirectory", Name="ml", Namespace="ml", Phase="Ready"
    )
    assert server.started == [
        ("StackUpgrades", upgrades),
        ("EndpointDirectory", directory),
    ]


@dataclass
class Replicas:
    """The client of a server. Starts and calls fail with the error of their workflow."""

    errors: dict[str, Exception]
    memos: dict[str, Exception | str] = field(default_factory=dict)
    status: WorkflowExecutionStatus = WorkflowExecutionStatus.RUNNING
    started: list[str] = field(default_factory=list)

    async def start_workflow(self, kind: str, _: object, **options: Any) -> None:
        workflow_id = options["id"]
        if error := self.errors.get(workflow_id):
            raise error
        if workflow_id in self.memos:
            raise WorkflowAlreadyStartedError(workflow_id, kind)
        self.started.append(workflow_id)

    def get_workflow_handle(self, workflow_id: str) -> Any:
        async def memo_value(*_: object) -> str:
            found = self.memos[workflow_id]
            if isinstance(found, Exception):
                raise found
            return found

        async def describe() -> Any:
            return SimpleNamespace(
                status=self.status, run_id="r", memo_value=memo_value
            )

        async def signal(*_: object) -> None:
            if error := self.errors.get(workflow_id):
                raise error

        return SimpleNamespace(id=workflow_id, describe=describe, signal=signal)


def a_start(name: str) -> StartReplica:
    return StartReplica(
        uid=name,
        namespace="ml",
        name=name,
        deployment="d",
        deployment_uid="v",
        cluster="eu",
        index=0,
        generation=1,
        spec={},
    )


def rpc(status: RPCStatusCode) -> RPCError:
    return RPCError("no", status, b"")


async def test_a_refused_start_delays_no_other_start() -> None:
    server = Replicas({"modelreplica/ml/a": rpc(RPCStatusCode.INVALID_ARGUMENT)})
    found = await start_replicas(cast("Client", server), [a_start("a"), a_start("b")])
    assert (server.started, found) == (
        ["modelreplica/ml/b"],
        StartedReplicas(refused={"a": "no"}),
    )


async def test_a_start_that_the_server_may_have_accepted_is_tried_again() -> None:
    server = Replicas({"modelreplica/ml/a": rpc(RPCStatusCode.UNAVAILABLE)})
    with pytest.raises(RPCError):
        await start_replicas(cast("Client", server), [a_start("a"), a_start("b")])
    assert server.started == ["modelreplica/ml/b"]


@pytest.mark.parametrize(
    "status", [WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.TERMINATED]
)
async def test_an_earlier_run_with_an_undecodable_memo_delays_no_other_start(
    status: WorkflowExecutionStatus,
) -> None:
    memos: dict[str, Exception | str] = {
        "modelreplica/ml/a": UnreadablePayload("no key")
    }
    server = Replicas({}, memos, status)
    found = await start_replicas(cast("Client", server), [a_start("a"), a_start("b")])
    assert (server.started, found.conflicts, list(found.refused)) == (
        ["modelreplica/ml/b"],
        [],
        ["a"],
    )
    assert "encryption key" in found.refused["a"]


@pytest.mark.parametrize(
    ("status", "raised"),
    [
        (RPCStatusCode.NOT_FOUND, False),
        (RPCStatusCode.INVALID_ARGUMENT, True),
        (RPCStatusCode.UNAVAILABLE, True),
    ],
)
async def test_only_a_receiver_that_does_not_run_is_missing(
    status: RPCStatusCode, raised: bool
) -> None:
    client = cast("Client", Replicas({"x": rpc(status)}))
    request = SignalRequest(workflow_id="x", signal="s", payload={})
    if raised:
        with pytest.raises(RPCError):
            await send_signal(client, request)
    else:
        assert not await send_signal(client, request)
