"""Reading accounts on a real Temporal server.

In pages that fit, after the epoch was announced, and past silent entities.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from activities.messaging import querying
from activities.messaging.sending import CALLS_AT_ONCE
from api_types.messages.scheduling import ReportClass, Resync
from api_types.payloads.limits import PAYLOAD_BYTES_MAX, wire_size
from api_types.payloads.packing import pack, unpack
from tests.workflows.environment.short_runs import server_with_short_runs
from workflows.fleet_scheduler.rebuild import activities
from workflows.fleet_scheduler.rebuild.activities import (
    AccountsPage,
    ReadAccounts,
    await_accounts,
    read_accounts,
)

pytestmark = pytest.mark.testbed("shared")

SERVED, MUTE = "served", "mute"
EPOCH = 7
# Each of these waits takes a second or two.
STUCK_SECONDS = 60


@workflow.defn(name="InferenceClass", sandboxed=False)
class AClass:
    """A class with an incompressible account of some size."""

    def __init__(self) -> None:
        self.epoch = 0
        self.size = 0

    @workflow.run
    async def run(self, size: int) -> None:
        self.size = size
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def resync(self, payload: Any) -> None:
        self.epoch = Resync.model_validate(payload).epoch

    @workflow.query
    def account(self) -> dict[str, Any]:
        name = workflow.info().workflow_id.rpartition("/")[2]
        padding = random.Random(name).randbytes(self.size // 2).hex()  # noqa: S311
        return ReportClass(
            name=name, generation=1, epoch=self.epoch, spec={"padding": padding}
        ).wire()


def ids(prefix: str, count: int) -> list[str]:
    return [f"inferenceclass/{prefix}-{number:03}" for number in range(count)]


async def start(
    client: Client, workflow_ids: Iterable[str], queue: str = SERVED, size: int = 0
) -> None:
    await asyncio.gather(
        *(
            client.start_workflow("InferenceClass", size, id=each, task_queue=queue)
            for each in workflow_ids
        )
    )


async def warmed(client: Client, workflow_ids: Iterable[str]) -> None:
    """Let a worker answer once, so that later answers are quick on a busy machine too."""
    await asyncio.gather(
        *(client.get_workflow_handle(each).query("account") for each in workflow_ids)
    )


def serving(client: Client, queue: str) -> Worker:
    return Worker(client, task_queue=queue, workflows=[AClass])


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[Client]:
    """Start one server for all tests. Each test has its own entities."""
    async with server_with_short_runs(events=10_000) as client, serving(client, SERVED):
        yield client


async def read(
    client: Client, workflow_ids: Iterable[str], **info: Any
) -> AccountsPage:
    environment = ActivityEnvironment(client=client)
    environment.info = replace(ActivityEnvironment.default_info(), **info)
    wanted = ReadAccounts(epoch=EPOCH, entities=pack(dict.fromkeys(workflow_ids, "")))
    page: AccountsPage = await environment.run(read_accounts, wanted)
    return page


def names_in(page: AccountsPage) -> list[str]:
    return [f"inferenceclass/{report.name}" for report in page.accounts.read_classes()]


async def test_accounts_larger_than_a_payload_are_read_in_pages_after_the_epoch_announcement(
    client: Client,
) -> None:
    wanted = ids("large", 12)
    await start(client, wanted, size=200_000)
    await warmed(client, wanted)
    found: list[str] = []
    left, pages = wanted, 0
    while left:
        page = await read(client, left)
        assert wire_size(page) <= PAYLOAD_BYTES_MAX
        assert page.unresponsive == {}
        assert {report.epoch for report in page.accounts.read_classes()} == {EPOCH}
        found, pages = found + names_in(page), pages + 1
        left = list(unpack(page.left)) if page.left else []
    assert sorted(found) == wanted
    assert pages > 1


async def test_silent_entities_delay_no_other_and_are_named(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(querying, "SLOT_SECONDS", 0.1)
    monkeypatch.setattr(querying, "QUIET_SECONDS", 3.0)
    mute, served = ids("a-mute", 2 * CALLS_AT_ONCE), ids("served", 3)
    await asyncio.gather(start(client, mute, MUTE), start(client, served))
    await warmed(client, served)
    page = await read(client, [*mute, *served])
    assert (names_in(page), list(page.unresponsive), page.left) == (served, mute, "")


async def test_a_second_attempt_does_not_query_silent_entities_again(
    client: Client,
) -> None:
    known, others = ids("known", 2), ids("other", 2)
    await start(client, [*known, *others])
    await warmed(client, [*known, *others])
    page = await read(
        client, [*known, *others], heartbeat_details=[{"unresponsive": known}]
    )
    assert (names_in(page), list(page.unresponsive)) == (others, known)
    heard = [
        (await client.get_workflow_handle(each).query("account"))["epoch"]
        for each in (*known, *others)
    ]
    assert heard == [0, 0, EPOCH, EPOCH]


async def test_a_wait_for_accounts_ends_with_the_first_answer_and_polls_ever_more_rarely(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(querying, "QUIET_SECONDS", 0.5)
    monkeypatch.setattr(activities, "_RETRY_SECONDS", (1.0, 4.0))
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await resumed.wait() if len(pauses) == 4 else None

    resumed = asyncio.Event()
    mute = ids("mute", 2)
    await start(client, mute, MUTE)
    monkeypatch.setattr(activities, "asyncio", Clock(pause))
    waiting = asyncio.create_task(
        ActivityEnvironment(client=client).run(
            await_accounts,
            ReadAccounts(epoch=EPOCH, entities=pack(dict.fromkeys(mute, ""))),
        )
    )
    while len(pauses) < 4:
        assert not waiting.done()
        await asyncio.sleep(0.1)
    assert pauses == [1, 2, 4, 4]
    async with serving(client, MUTE):
        resumed.set()
        async with asyncio.timeout(STUCK_SECONDS):
            page = await waiting
    assert page.answered
    assert sorted(names_in(page)) == sorted(page.answered)


async def test_a_wait_for_accounts_ends_when_no_entity_is_left_to_query(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(querying, "QUIET_SECONDS", 0.5)
    mute = ids("terminated", 2)
    await start(client, mute, "never served")
    await client.get_workflow_handle(mute[0]).terminate("an accident")
    async with asyncio.timeout(STUCK_SECONDS):
        page = await ActivityEnvironment(client=client).run(
            await_accounts,
            ReadAccounts(epoch=EPOCH, entities=pack(dict.fromkeys(mute, ""))),
        )
    assert (names_in(page), page.answered) == ([], [mute[0]])


async def test_of_missing_entities_only_a_cluster_with_replicas_is_awaited(
    client: Client,
) -> None:
    """It is unknown whether the cluster was deleted, so its replicas must not be evicted."""
    kept, unused = "inferencecluster/kept", "inferencecluster/unused"
    wanted = ReadAccounts(
        epoch=EPOCH, entities=pack({kept: "", unused: ""}), charged=pack([kept])
    )
    async with asyncio.timeout(STUCK_SECONDS):
        page = await ActivityEnvironment(client=client).run(await_accounts, wanted)
    assert (page.answered, page.unresponsive) == ([unused], {kept: "kept"})


class Clock:
    """The module `asyncio` with another `sleep`."""

    def __init__(self, sleep: Any) -> None:
        self.sleep = sleep
