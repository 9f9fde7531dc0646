"""`modelplane workers` at a real Temporal server, whose rules for builds limit
promotions.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from api_types import queues
from api_types.sections.programs import WorkerSettings
from client.commands.change.workers import poll_table, status_table
from client.failures import report
from fleet_client.errors import NotFound, WriteConflict
from fleet_client.temporal import worker_versions as module
from fleet_client.temporal.worker_versions import (
    POLLED_LATELY,
    WorkerVersions,
    current_build,
    promote,
    worker_versions,
)
from tests.client.conftest import Cli
from tests.workflows.environment.harness import eventually
from tests.workflows.environment.protocol_fleet import protocol_server
from worker import versioning

NAME = "modelplane"
BOTH = (queues.WORKFLOWS, queues.SCHEDULER)


@workflow.defn(sandboxed=False)
class Nothing:
    """A worker of workflows needs at least one workflow."""

    @workflow.run
    async def run(self) -> None:
        pass


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[Client]:
    async with protocol_server() as client:
        yield client


@asynccontextmanager
async def serving(
    client: Client, build: str, *served: str, name: str = NAME
) -> AsyncIterator[None]:
    """Run workers of a build. Return when the server has seen each of them."""
    limits = WorkerSettings(deployment_name=name, build_id=build)
    async with AsyncExitStack() as stack:
        for queue in served:
            await stack.enter_async_context(
                Worker(
                    client, task_queue=queue, workflows=[Nothing], **versioning(limits)
                )
            )
        seen = build if name else "unversioned"
        await eventually(
            lambda: worker_versions(client, name or NAME),
            lambda found: (
                set(served) <= set(found.serves.get(seen, ()))
                and (not name or build in found.status)
            ),
            what=f"workers of {build}",
        )
        yield


async def failed(client: Client, build: str) -> NotFound:
    with pytest.raises(NotFound) as failure:
        await promote(client, NAME, build)
    return failure.value


@pytest.mark.testbed("shared")
async def test_a_build_is_promoted_once_its_workers_serve_all_workflows_and_back(
    client: Client,
) -> None:
    assert status_table(await worker_versions(client, NAME)) == [
        "BUILD         STATUS    SERVES",
        "unversioned   Current   <none>",
    ]
    unknown = await failed(client, "a")
    assert report(unknown).splitlines() == [
        (
            "error: build a of Worker Deployment modelplane cannot be promoted: none "
            "of its workers serves modelplane and modelplane-scheduler"
        ),
        (
            "next: start workers of this build, and promote it with `--wait`; "
            "`modelplane workers status` shows the builds that do"
        ),
    ]
    async with serving(client, "a", *BOTH), serving(client, "b", queues.WORKFLOWS):
        assert await current_build(client, NAME) == "unversioned"
        assert [await promote(client, NAME, "a"), await promote(client, NAME, "a")] == [
            True,
            False,
        ]
        half = await failed(client, "b")
        assert half.message.endswith("none of its workers serves modelplane-scheduler")
        assert half.details == (
            "a serves modelplane, modelplane-scheduler",
            "b serves modelplane",
        )
        async with serving(client, "b", queues.SCHEDULER):
            assert await promote(client, NAME, "b")
            assert status_table(await worker_versions(client, NAME)) == [
                "BUILD   STATUS     SERVES",
                "b       Current    modelplane, modelplane-scheduler",
                "a       Draining   modelplane, modelplane-scheduler",
            ]
            assert [
                await promote(client, NAME, "a"),
                await current_build(client, NAME),
            ] == [True, "a"]
        async with serving(client, "old", *BOTH, name=""):
            assert [
                await promote(client, NAME, "unversioned"),
                await current_build(client, NAME),
            ] == [True, "unversioned"]


@pytest.mark.testbed("shared")
async def test_of_two_promotions_at_once_the_later_one_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "another"
    async with (
        serving(client, "a", *BOTH, name=name),
        serving(client, "b", *BOTH, name=name),
    ):
        read = await worker_versions(client, name)
        await promote(client, name, "a")

        async def what_was_read(_: Client, deployment: str) -> WorkerVersions:
            assert deployment == name
            return read

        monkeypatch.setattr(module, "worker_versions", what_was_read)
        with pytest.raises(
            WriteConflict, match="build b of Worker Deployment another was not promoted"
        ) as refused:
            await promote(client, name, "b")
        assert "check `modelplane workers status`" in refused.value.next_step
        assert await current_build(client, name) == "a"


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("words", [("promote",), ("promote", "a", "--wait")])
def test_without_a_deployment_the_command_names_the_variable_to_set(
    cli: Cli, words: tuple[str, ...]
) -> None:
    ended = cli("workers", *words)
    assert (ended.code, ended.out) == (2, "")
    assert "MODELPLANE_WORKER__DEPLOYMENT_NAME=modelplane" in ended.err


async def test_status_shows_the_last_poll_of_each_queue(
    client: Client, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = client.service_client.config.target_host
    monkeypatch.setenv("MODELPLANE_TEMPORAL__ADDRESS", address)
    async with serving(client, "a", queues.SCHEDULER):
        ended = await asyncio.to_thread(cli, "workers", "status")
    assert ended.code == 0, ended.err
    titles, *rows = [line.split()[:2] for line in ended.out.splitlines()]
    assert titles == ["TASK-QUEUE", "STATUS"]
    assert [queues.SCHEDULER, "Polled"] in rows
    assert {queue for queue, _ in rows} == set(BOTH)


def test_a_queue_without_a_poll_for_two_minutes_is_silent() -> None:
    polls = {"busy": 100.0, "left": 0.0, "never": None}
    assert [line.split(maxsplit=2) for line in poll_table(polls, POLLED_LATELY)] == [
        ["TASK-QUEUE", "STATUS", "LAST-POLL"],
        ["busy", "Polled", "20 s ago"],
        ["left", "Silent", "120 s ago"],
        ["never", "Silent", "none in 5 min"],
    ]
