"""Sends many writes while many watches run; measures times and lost events.

Writes start at a fixed rate, even if earlier ones are unanswered. The time of each
write counts from its scheduled start: a server that pauses delays all writes that are
due.
"""

import asyncio
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.workflows.environment.harness import eventually
from tests.workflows.environment.simulated_clusters import a_class

BASE = "/apis/modelplane.ai/v1alpha1/inferenceclasses"
LABEL = "turn"
_AT_ONCE = 16
_OK, _CREATED = 200, 201
Json = dict[str, Any]


@dataclass(frozen=True)
class Load:
    """The size of the load: objects, watchers, and writes per second for some seconds.

    `prefix` begins the names of the objects.
    """

    objects: int
    watchers: int
    per_second: float
    seconds: float
    prefix: str = "load"

    def name(self, number: int) -> str:
        """Return the name of the object for a write."""
        return f"{self.prefix}-{number % self.objects:04}"


@dataclass
class Outcome:
    """The results.

    `writes` are durations in seconds.

    `delays` are the seconds from the answer to a write until a watcher saw it, `behind`
    the watchers whose final state differs from the list, and `failed` the answers of
    failed writes.
    """

    writes: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)
    events: int = 0


@dataclass
class Observer:
    """A watcher that lists and then watches from that version, like client libraries."""

    session: aiohttp.ClientSession
    held: dict[str, tuple[str, str]] = field(default_factory=dict)
    turns: dict[int, float] = field(default_factory=dict)
    events: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Watch until cancelled."""
        version, self.held = await listed(self.session)
        while True:
            async with self.session.get(
                BASE,
                params={"watch": "true", "resourceVersion": version},
                timeout=_ENDLESS,
            ) as answer:
                answer.raise_for_status()
                self.ready.set()
                async for line in answer.content:
                    version = self._take(json.loads(line))

    def _take(self, event: Json) -> str:
        self.events += 1
        metadata = event["object"]["metadata"]
        name, state = metadata["name"], state_of(metadata)
        if event["type"] == "DELETED":
            self.held.pop(name, None)
        else:
            self.held[name] = state
            if state[1]:
                self.turns[int(state[1])] = time.perf_counter()
        return state[0]


_ENDLESS = aiohttp.ClientTimeout(total=None)


def state_of(metadata: Json) -> tuple[str, str]:
    """Return the version of an object and the number of its last write."""
    return metadata["resourceVersion"], metadata.get("labels", {}).get(LABEL, "")


async def listed(
    session: aiohttp.ClientSession,
) -> tuple[str, dict[str, tuple[str, str]]]:
    """Return the version of the list, and the state of each object."""
    async with session.get(BASE) as answer:
        answer.raise_for_status()
        tree = await answer.json()
    return tree["metadata"]["resourceVersion"], {
        each["metadata"]["name"]: state_of(each["metadata"]) for each in tree["items"]
    }


async def create(session: aiohttp.ClientSession, load: Load) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        async with turns, session.post(BASE, json=a_class(load.name(number))) as answer:
            assert answer.status == _CREATED, await answer.text()

    await asyncio.gather(*(one(number) for number in range(load.objects)))


async def drive(
    session: aiohttp.ClientSession,
    watching: Sequence[aiohttp.ClientSession],
    load: Load,
    within: float,
) -> Outcome:
    """Write and watch; each watcher has its own session.

    After the last write, watchers have `within` seconds to receive all events.
    """
    outcome, observers = Outcome(), [Observer(each) for each in watching]
    tasks = [asyncio.create_task(each.run()) for each in observers]
    try:
        await asyncio.gather(*(each.ready.wait() for each in observers))
        answered = await write_all(session, load, outcome)

        async def behind() -> list[int]:
            for task in tasks:
                if task.done():
                    task.result()
            _, wanted = await listed(session)
            outcome.behind = [
                number for number, each in enumerate(observers) if each.held != wanted
            ]
            return outcome.behind

        await eventually(
            behind, lambda found: not found, within=within, what="the watchers"
        )
        outcome.events = sum(each.events for each in observers)
        outcome.delays = sorted(
            seen - answered[turn]
            for turn, seen in observers[0].turns.items()
            if turn in answered
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return outcome


async def write_all(
    session: aiohttp.ClientSession, load: Load, outcome: Outcome
) -> dict[int, float]:
    """Send all writes; return the time of each answer."""
    answered: dict[int, float] = {}
    started = time.perf_counter()

    async def one(number: int) -> None:
        due = started + number / load.per_second
        await asyncio.sleep(due - time.perf_counter())
        body = json.dumps({"metadata": {"labels": {LABEL: str(number)}}})
        headers = {"Content-Type": "application/merge-patch+json"}
        async with session.patch(
            f"{BASE}/{load.name(number)}", data=body, headers=headers
        ) as answer:
            text = await answer.text()
        answered[number] = time.perf_counter()
        if answer.status == _OK:
            outcome.writes.append(answered[number] - due)
        else:
            outcome.failed.append(text)

    await asyncio.gather(
        *(one(number) for number in range(round(load.per_second * load.seconds)))
    )
    outcome.writes.sort()
    return answered


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile of sorted values."""
    return values[math.ceil(len(values) * share) - 1] if values else math.nan
