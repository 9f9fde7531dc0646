"""Waiting until a cluster can be connected, without a cluster."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from activities.cluster_objects.cluster_api import ClusterApi
from activities.clusters import connection_wait
from activities.clusters.connection_wait import ConnectionRetry
from api_types.errors import (
    ClusterUnreachable,
    CredentialsInvalid,
    ModelplaneError,
    PermissionDenied,
)
from tests.environment.idle_clusters import IdleCluster

# No test waits this long.
NEVER = (100_000.0, 100_000.0)
AT_ONCE = (0.0, 0.0)
POLLS = 20


@dataclass
class Store:
    """A Secret, and the attempts with its content. `now` is the result of both."""

    now: "ClusterApi | ModelplaneError"
    refused: ModelplaneError | None = None
    reads: int = 0
    attempts: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> ClusterApi:
        self.reads += 1
        if self.reads >= POLLS:
            self.enough.set()
        if isinstance(self.now, ModelplaneError):
            raise self.now
        return self.now

    async def attempt(self, client: ClusterApi) -> None:
        del client
        self.attempts += 1
        if self.refused:
            raise self.refused

    async def polled(self, wait: "asyncio.Task[None]") -> None:
        """Let some polls pass. The wait must not end."""
        self.reads = 0
        self.enough.clear()
        ended, _ = await asyncio.wait(
            [wait, asyncio.create_task(self.enough.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert wait not in ended


@contextlib.asynccontextmanager
async def waiting(
    store: Store, known: ModelplaneError
) -> AsyncIterator["asyncio.Task[None]"]:
    """Return the wait as a task, after an attempt that failed with an error."""
    task = asyncio.create_task(
        ConnectionRetry(
            store.read, store.attempt, known.type or "", known.message
        ).run()
    )
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_wait, "SECRET_POLL_SECONDS", 0.0)
    monkeypatch.setattr(connection_wait, "ATTEMPT_SECONDS", NEVER)


async def test_a_secret_that_arrives_is_tried_at_once() -> None:
    missing = CredentialsInvalid("Secret eu does not exist")
    store = Store(missing)
    async with waiting(store, missing) as wait:
        await store.polled(wait)
        assert store.attempts == 0
        store.now = IdleCluster()
        async with asyncio.timeout(60):
            await wait
    assert store.attempts == 1


async def test_a_credential_is_retried_at_growing_intervals_and_a_new_one_at_once() -> (
    None
):
    refused = CredentialsInvalid("401")
    store = Store(IdleCluster(), refused)
    async with waiting(store, refused) as wait:
        await store.polled(wait)
        assert store.attempts == 1
        store.now = IdleCluster()
        await store.polled(wait)
        assert store.attempts == 2


async def test_an_api_server_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_wait, "ATTEMPT_SECONDS", AT_ONCE)
    store = Store(IdleCluster(), ClusterUnreachable("connection refused"))
    # The text of a lost connection varies. It is the same failure.
    async with waiting(store, ClusterUnreachable("timed out")) as wait:
        await store.polled(wait)
        store.refused = None
        async with asyncio.timeout(60):
            await wait


@pytest.mark.parametrize(
    ("known", "now"),
    [
        (
            CredentialsInvalid("Secret eu does not exist"),
            CredentialsInvalid("Secret eu has no key 'kubeconfig'"),
        ),
        (ClusterUnreachable("timed out"), CredentialsInvalid("401")),
        (CredentialsInvalid("401"), PermissionDenied("401")),
    ],
    ids=[
        "another text for a person",
        "another error",
        "another error of the same text",
    ],
)
async def test_another_failure_ends_the_wait_so_that_it_is_shown(
    known: ModelplaneError, now: ModelplaneError
) -> None:
    store = Store(IdleCluster(), now)
    async with waiting(store, known) as wait, asyncio.timeout(60):
        await wait


def test_the_pauses_between_attempts_grow_to_a_minute() -> None:
    shortest, longest = 3.0, 60.0
    assert connection_wait.next_pause(shortest, longest) == 2 * shortest
    assert connection_wait.next_pause(longest, longest) == longest
