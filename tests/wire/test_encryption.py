"""Undecryptable payloads stop nothing on a real server, and changes of keys undo
nothing.
"""

import asyncio
import base64
import os
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.messaging.search_attributes import identity_at_start
from api_types import names, queues
from api_types.messages.entities import RetryNow, SetSpec
from api_types.sections.clusters import SecretSettings
from api_types.sections.programs import WorkerSettings
from api_types.sections.temporal import (
    EncryptionSettings,
    QueueSettings,
    TemporalSettings,
)
from api_types.settings import Settings
from fleet_client.temporal.codec import ENCODING
from fleet_client.temporal.connection import connect
from tests.workflows.environment.harness import eventually
from tests.workflows.environment.protocol_fleet import protocol_server, workers_here
from tests.workflows.environment.simulated_clusters import a_class

pytestmark = pytest.mark.testbed("shared")

KIND = "InferenceClass"
SHORT = timedelta(seconds=5)


class Fleet:
    """A server, and programs with different sets of keys."""

    def __init__(self, plain: Client, folder: Path) -> None:
        self.plain = plain
        self._folder = folder
        for key in ("one", "two"):
            (folder / key).write_text(base64.b64encode(os.urandom(32)).decode())

    def settings(self, *keys: str, required: bool = False) -> Settings:
        """Return settings with these keys; the first one is active."""
        return Settings(
            temporal=TemporalSettings(
                address=self.plain.service_client.config.target_host
            ),
            encryption=EncryptionSettings(
                keys={key: self._folder / key for key in keys},
                active_key=keys[0],
                required=required,
            ),
            queues=QueueSettings(serve=(queues.WORKFLOWS, queues.SCHEDULER)),
            secrets=SecretSettings(directory=self._folder / "secrets"),
            worker=WorkerSettings(graceful_shutdown_seconds=0),
        )

    @asynccontextmanager
    async def served(self, *keys: str, required: bool = False) -> AsyncIterator[Client]:
        """Run the workers of users, and return a client with the same keys."""
        settings = self.settings(*keys, required=required)
        client = await connect(settings)
        with ThreadPoolExecutor() as threads:
            workers = workers_here(client, settings, threads)
            running = [asyncio.create_task(worker.run()) for worker in workers.values()]
            yield client
            await asyncio.gather(*(worker.shutdown() for worker in workers.values()))
            await asyncio.gather(*running)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with protocol_server() as plain:
        yield Fleet(plain, tmp_path)


async def applied(
    client: Client, name: str, sender: Client | None = None
) -> WorkflowHandle[Any, Any]:
    message = SetSpec(
        request_id=uuid.uuid4().hex, by="test", manifest=a_class(name)
    ).wire()
    started = await (sender or client).start_workflow(
        KIND,
        None,
        id=names.workflow_id(KIND, "", name),
        task_queue=queues.WORKFLOWS,
        **identity_at_start(KIND, "", name),
        start_signal="set_spec",
        start_signal_args=[message],
    )
    handle = client.get_workflow_handle(started.id)
    await until(handle, lambda seen: seen["status"]["phase"] == "Ready")
    return handle


async def until(handle: WorkflowHandle[Any, Any], holds: Any) -> Any:
    async def look() -> Any:
        try:
            return await handle.query("describe")
        except (RPCError, WorkflowQueryFailedError):
            return None

    return await eventually(
        look, lambda seen: seen is not None and holds(seen), what=handle.id
    )


def refusals(seen: Any) -> str:
    return "; ".join(
        event["message"]
        for event in seen["status"].get("events", ())
        if event["reason"] == "MalformedMessage"
    )


async def sent(plain: Client, workflow_id: str, signal: str) -> Payload:
    """The stored payload of the first such signal."""
    history = await plain.get_workflow_handle(workflow_id).fetch_history()
    payload: Payload
    (payload, *_) = (
        event.workflow_execution_signaled_event_attributes.input.payloads[0]
        for event in history.events
        if event.workflow_execution_signaled_event_attributes.signal_name == signal
    )
    return payload


async def test_what_was_encrypted_for_one_workflow_is_refused_by_another(
    fleet: Fleet,
) -> None:
    async with fleet.served("one") as client:
        await applied(client, "first")
        second = await applied(client, "second")
        stolen = await sent(fleet.plain, "inferenceclass/first", "set_spec")
        assert stolen.metadata["encoding"] == ENCODING
        await fleet.plain.get_workflow_handle(second.id).signal(
            "set_spec", RawValue(stolen)
        )
        seen = await until(second, refusals)
        assert "was encrypted for inferenceclass/first" in refusals(seen)
        # The object accepts the signal itself, and knows the request.
        await fleet.plain.get_workflow_handle("inferenceclass/first").signal(
            "set_spec", RawValue(stolen)
        )
        assert (
            refusals(
                await client.get_workflow_handle("inferenceclass/first").query(
                    "describe"
                )
            )
            == ""
        )


async def test_where_encryption_is_required_plain_messages_are_refused_and_what_is_stored_is_read(
    fleet: Fleet,
) -> None:
    async with fleet.served("one") as client:
        # Not encrypted: encryption is switched on while objects live.
        early = fleet.plain.get_workflow_handle(
            (await applied(client, "early", sender=fleet.plain)).id
        )
    async with fleet.served("one", required=True) as client:
        handle = client.get_workflow_handle(early.id)
        assert refusals(await until(handle, lambda _: True)) == ""
        await early.signal("retry_now", RetryNow(request_id="plain").wire())
        seen = await until(handle, refusals)
        assert "encryption.required is set" in refusals(seen)
        assert "plain" not in seen["appliedRequestIds"]
        await handle.signal("retry_now", RetryNow(request_id="encrypted").wire())
        await until(handle, lambda seen: "encrypted" in seen["appliedRequestIds"])
        with pytest.raises(
            WorkflowQueryFailedError, match=r"encryption\.required is set"
        ):
            await fleet.plain.get_workflow_handle(names.FLEET_SCHEDULER_ID).query(
                "pools", "eu"
            )
        started = await fleet.plain.start_workflow(
            KIND, {}, id="inferenceclass/plain", task_queue=queues.WORKFLOWS
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await client.get_workflow_handle(started.id).result()
        assert isinstance(failed.value.cause, ApplicationError)
        assert "encryption.required is set" in failed.value.cause.message
    # A refused payload stays refused for a worker that could read it.
    async with fleet.served("one") as client:
        seen = await until(client.get_workflow_handle(early.id), refusals)
        assert "plain" not in seen["appliedRequestIds"]


async def test_a_message_with_an_unknown_key_is_refused_for_good_and_a_lost_key_is_waited_for(
    fleet: Fleet,
) -> None:
    async with fleet.served("one") as client:
        handle = await applied(client, "h100")
        other = await connect(fleet.settings("two", "one"))
        await other.get_workflow_handle(handle.id).signal(
            "retry_now", RetryNow(request_id="too-early").wire()
        )
        seen = await until(handle, refusals)
        assert "'two', which is not in encryption.keys" in refusals(seen)
    # The rotation goes on. A worker with the key repeats the refusal, and reads the
    # next payload.
    async with fleet.served("two", "one") as client:
        handle = client.get_workflow_handle(handle.id)
        seen = await until(handle, refusals)
        assert "too-early" not in seen["appliedRequestIds"]
        await handle.signal("retry_now", RetryNow(request_id="in-time").wire())
        await until(handle, lambda seen: "in-time" in seen["appliedRequestIds"])
    # Without the first key the object is unreadable. It waits, unchanged and open.
    async with fleet.served("two") as client:
        with pytest.raises((RPCError, WorkflowQueryFailedError)):
            await client.get_workflow_handle(handle.id).query(
                "describe", rpc_timeout=SHORT
            )
    async with fleet.served("two", "one") as client:
        seen = await until(
            client.get_workflow_handle(handle.id),
            lambda seen: seen["status"]["phase"] == "Ready",
        )
        assert {"too-early", "in-time"} & set(seen["appliedRequestIds"]) == {"in-time"}


async def test_a_message_that_was_read_or_refused_before_is_judged_anew_when_an_equal_one_comes(
    fleet: Fleet,
) -> None:
    async with fleet.served("one") as client:
        handle = await applied(client, "again", sender=fleet.plain)
        plain, message = (
            fleet.plain.get_workflow_handle(handle.id),
            RetryNow(by="anyone").wire(),
        )
        await plain.signal("retry_now", message)
        await handle.signal("retry_now", RetryNow(request_id="next").wire())
        await until(handle, lambda seen: "next" in seen["appliedRequestIds"])
    async with fleet.served("one", required=True) as client:
        await plain.signal("retry_now", message)
        seen = await until(client.get_workflow_handle(handle.id), refusals)
        assert "encryption.required is set" in refusals(seen)
    async with fleet.served("one") as client:
        handle = client.get_workflow_handle(handle.id)
        await plain.signal("retry_now", message)
        await handle.signal("retry_now", RetryNow(request_id="last").wire())
        await until(handle, lambda seen: "last" in seen["appliedRequestIds"])
    async with fleet.served("one") as client:
        # A replay repeats every acceptance and every refusal.
        await until(
            client.get_workflow_handle(handle.id),
            lambda seen: "last" in seen["appliedRequestIds"],
        )
        seen = await until(client.get_workflow_handle(handle.id), refusals)
        assert [
            event["count"]
            for event in seen["status"]["events"]
            if event["reason"] == "MalformedMessage"
        ] == [1]
