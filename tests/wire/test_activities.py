"""Every activity refuses arguments with mistakes for good, and says why.

The test takes the activities of all workers by their queues, so it covers new
activities without a change here.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import get_type_hints

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from api_types.sections.clusters import SecretSettings
from api_types.settings import Settings
from tests.random_cases import cases, generator
from tests.wire.inputs import LARGE, bad_inputs
from tests.workflows.environment.protocol_fleet import protocol_server, workers_here

pytestmark = pytest.mark.testbed("shared")

CALLER = "caller"
PROBLEM_BYTES_MAX = 1200
BYTES_MAX = 900_000
# Mistakes per activity, of 25. All activities read arguments with the same code, and a
# campaign makes every mistake with each of them.
MISTAKES = 2
# JSON that may be an order without required fields. The activity itself reports the
# problem.
ORDERS = ("a long id", "the far future", "NaN", "nested less", "a number without end")


@workflow.defn(name="Caller")
class Caller:
    """Calls an activity, and returns its failure."""

    @workflow.run
    async def run(
        self, queue: str, name: str, arguments: list[tuple[dict[str, str], str]]
    ) -> tuple[str, bool, str]:
        try:
            await workflow.execute_activity(
                name,
                args=[_payload(*each) for each in arguments],
                task_queue=queue,
                start_to_close_timeout=timedelta(seconds=60),
                heartbeat_timeout=timedelta(seconds=60),
                # Temporal would retry an order of the product without end.
                schedule_to_close_timeout=timedelta(seconds=60),
                retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1)),
            )
        except ActivityError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError):
                return str(cause.type), cause.non_retryable, cause.message
            return type(cause).__name__, False, str(cause)
        return "", False, ""


def _payload(metadata: dict[str, str], data: str) -> RawValue:
    return RawValue(
        Payload(
            metadata={key: each.encode() for key, each in metadata.items()},
            data=bytes.fromhex(data),
        )
    )


def _written(arguments: list[RawValue]) -> list[tuple[dict[str, str], str]]:
    """Encode arguments for the called activity as text, which the calling workflow can
    read.
    """
    return [
        (
            {key: each.decode() for key, each in raw.payload.metadata.items()},
            raw.payload.data.hex(),
        )
        for raw in arguments
    ]


def _bytes(arguments: list[RawValue]) -> int:
    return sum(len(raw.payload.data) for raw in arguments)


async def call(
    client: Client, queue: str, name: str, mistake: str, arguments: list[RawValue]
) -> tuple[str, bool, str]:
    """Call an activity and return its failure."""
    return await client.execute_workflow(
        Caller.run,
        args=[queue, name, _written(arguments)],
        id=f"call/{name}/{mistake}",
        task_queue=CALLER,
        execution_timeout=timedelta(seconds=180),
    )


@pytest.fixture(scope="module")
async def workers(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[Client, dict[str, Worker]]]:
    settings = Settings(
        secrets=SecretSettings(
            directory=tmp_path_factory.mktemp("secrets") / Path("store")
        )
    )
    async with protocol_server() as client, AsyncExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor())
        served = workers_here(client, settings, threads)
        for worker in served.values():
            await stack.enter_async_context(worker)
        await stack.enter_async_context(
            Worker(
                client,
                task_queue=CALLER,
                workflows=[Caller],
                workflow_runner=UnsandboxedWorkflowRunner(),
                debug_mode=True,
            )
        )
        yield client, served


@pytest.mark.random
async def test_an_argument_that_cannot_be_read_fails_every_activity_for_good_in_words(
    workers: tuple[Client, dict[str, Worker]],
) -> None:
    client, served = workers
    called: set[str] = set()
    draw = generator()
    for queue, worker in served.items():
        config = worker.config(active_config=True)
        if config.get("no_remote_activities"):
            continue
        for function in config["activities"]:
            name = str(activity._Definition.must_from_callable(function).name)
            hints = {
                key: hint
                for key, hint in get_type_hints(function).items()
                if key != "return"
            }
            model = next(iter(hints.values()), None)
            if name in called:
                continue
            called.add(name)
            mistakes = bad_inputs(model)
            # The server refuses inputs that are large before the caller encodes them in
            # hexadecimal.
            chosen = {
                mistake: each
                for mistake, each in mistakes.items()
                if mistake not in LARGE and _bytes(each) < BYTES_MAX
            }
            if not hints:
                del chosen["no input"]
            chosen = {
                mistake: chosen[mistake]
                for mistake in draw.sample(
                    sorted(chosen), min(cases(MISTAKES), len(chosen))
                )
            }
            outcomes = await asyncio.gather(
                *(
                    call(client, queue, name, mistake, each)
                    for mistake, each in chosen.items()
                )
            )
            for mistake, (kind, for_good, message) in zip(
                chosen, outcomes, strict=True
            ):
                assert len(message.encode()) <= PROBLEM_BYTES_MAX, (
                    name,
                    mistake,
                    message[:300],
                )
                if hints and mistake in ORDERS and kind != "InvalidInput":
                    continue
                assert (kind, for_good) == ("InvalidInput", True), (
                    name,
                    mistake,
                    message[:300],
                )
                assert name in message
    assert called
