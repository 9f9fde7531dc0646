"""`modelplane ui` shows the page of an object without a worker, and none of a missing
object.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from api_types.settings import Settings
from client.commands.inspect import ui
from fleet_client.temporal.control_plane import ControlPlane
from tests.client.conftest import Cli


class Server:
    """A Temporal without workers, which describes workflows and answers no query."""

    def __init__(self, status: WorkflowExecutionStatus | None) -> None:
        self.status = status

    def get_workflow_handle(self, _workflow_id: str) -> "Server":
        return self

    async def describe(self) -> Any:
        if self.status is None:
            raise RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")
        return SimpleNamespace(
            status=self.status,
            run_id="run",
            raw_description=DescribeWorkflowExecutionResponse(),
        )

    async def query(self, *_words: Any, **_named: Any) -> None:
        raise RPCError(
            "no poller seen for task queue recently",
            RPCStatusCode.FAILED_PRECONDITION,
            b"",
        )


def connect_to(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def connected(settings: Settings, _why: str) -> AsyncIterator[ControlPlane]:
        yield ControlPlane(server, settings)  # type: ignore[arg-type]

    monkeypatch.setattr(ui, "control_plane", connected)


@pytest.mark.usefixtures("nowhere")
def test_the_page_of_an_object_is_shown_while_no_worker_runs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_to(Server(WorkflowExecutionStatus.RUNNING), monkeypatch)
    result = cli("ui", "--no-open", "md/qwen")
    page = (
        "http://127.0.0.1:8233/namespaces/default/workflows"
        "/modeldeployment%2Fdefault%2Fqwen/run/history"
    )
    assert (result.code, result.out) == (0, f"{page}\n")


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("status", [None, WorkflowExecutionStatus.COMPLETED], ids=str)
def test_an_object_that_does_not_exist_has_no_page(
    status: WorkflowExecutionStatus | None, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_to(Server(status), monkeypatch)
    result = cli("ui", "--no-open", "md/qwen")
    assert (result.code, result.out) == (3, "")
    assert "ModelDeployment default/qwen does not exist" in result.err
