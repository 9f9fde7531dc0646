"""The disturbances of one random life: faults of the cloud, dying workers, and people.

The number of the life determines them.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from api_types.errors import (
    CapacityUnavailable,
    ClusterUnreachable,
    ModelplaneError,
    OwnerMarkMissing,
    ServerError,
    TransientError,
)
from fakes.aws import faults as aws
from fakes.aws.troubles import TROUBLES
from fakes.gcp.calls import random_faults as gcp
from fakes.gcp.calls.faults import GcpFault, Slow
from tests.activities.clouds.lives.deaths import Deaths
from tests.activities.clouds.lives.life import HOUR, Fake, Life
from tests.activities.clouds.lives.virtual_time import run
from tests.simulation.clock import VirtualLoop

# Every fault ends, so at this time everything is Ready, or has a condition that names
# the next step of a person.
_HOURS = 6.0
_ACTS_OF_A_PERSON = 3
"""A deletion may meet one cause after another that a person has to remove."""
_FAULTS_MAX = 6
_DEATHS_MAX = 3
_DEATH = 0.02
_NEW_RUN = 0.1
_JUMPS = (-2 * HOUR, -60.0, 60.0, HOUR, 30 * HOUR)
_SOME = 0.3
_TROUBLE_HOURS = 4.0
_TROUBLE = 0.5
_EKS_ZONES = ("us-east-2a", "us-east-2b", "us-east-2c")
# The leftovers of an etag race in a project's policy are not ours.
_OF_OTHERS = "user:other@example.com"
_VANISHING = ("CreateNodegroup", "CreateAddon", "CreateNatGateway", "CreateFileSystem")


@dataclass
class Ended:
    """The course of a life: one word for each part, or the error of the workflow."""

    number: int
    how: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Violations of the rules."""
    attempts: list[str] = field(default_factory=list)
    faults: list[Any] = field(default_factory=list)
    hours: float = 0.0

    @property
    def line(self) -> str:
        """Return one line for the report."""
        wrong = f"  WRONG: {'; '.join(self.wrong)}" if self.wrong else ""
        return f"{self.number:4d} {self.hours:7.1f}h  {'; '.join(self.how)}{wrong}"


def faults_of(fake: Fake, draw: random.Random) -> list[Any]:
    """Draw a script of faults."""
    count = draw.randint(0, _FAULTS_MAX)
    if fake.source == "GKE":
        script: list[GcpFault] = gcp.random_faults(draw, count)
        return [
            *script,
            *(
                [Slow(call=draw.choice(gcp.READS), seconds=0.01, times=3)]
                if draw.random() < _SOME
                else []
            ),
        ]
    drawn = aws.random_script(draw, count, _EKS_ZONES)
    if draw.random() < _TROUBLE:
        trouble = draw.choice(list(TROUBLES))
        drawn += TROUBLES[trouble](draw, _EKS_ZONES)
    if draw.random() < _SOME:
        drawn.append(
            aws.AwsFault(
                aws.FaultKind.VANISH, draw.choice(_VANISHING), times=draw.randint(1, 6)
            )
        )
    if draw.random() < _SOME:
        drawn.append(aws.AwsFault(aws.FaultKind.SLOW, seconds=0.01, times=3))
    return drawn


def life_of(fake: Fake, number: int, seed: int) -> Ended:
    """Live one life: create, change, delete.

    The same number and seed give the same life.
    """
    draw = random.Random(f"{seed}/{number}")  # noqa: S311 - repeatable on purpose
    machines = random.Random(f"{seed}/{number}/machines")  # noqa: S311
    troubles = random.Random(f"{seed}/{number}/troubles")  # noqa: S311
    ended = Ended(number)
    # Clients repeat calls after real pauses.
    with patch("botocore.endpoint.time.sleep"):
        run(lambda: _Script(fake, draw, machines, troubles, ended).live(), draw)
    return ended


class _Script:
    """One life."""

    def __init__(
        self,
        fake: Fake,
        draw: random.Random,
        machines: random.Random,
        troubles: random.Random,
        ended: Ended,
    ) -> None:
        self._fake = fake
        self._draw = draw
        # The other draws of a life do not depend on these.
        self._machines = machines
        self._ended = ended
        self._troubles = troubles
        self._passing: list[tuple[asyncio.Task[None], Callable[[], None]]] = []
        self._held_up_since = 0.0
        left = draw.randint(0, _DEATHS_MAX)

        def dies(*_: str) -> bool:
            nonlocal left
            if left and draw.random() < _DEATH:
                left -= 1
                return True
            return False

        self._life = Life(
            fake,
            draw,
            Deaths(dies),
            new_runs=draw.choice((0.0, _NEW_RUN)),
            parallel=draw.choice((1, 3, 6)),
        )

    async def live(self) -> None:
        """Create, change, delete."""
        life = self._life
        with life.temporal.patched():
            try:
                life.begin()
                await self._part("created", self._create)
                await self._part("changed", self._change)
                await self._delete()
            finally:
                self._ended.attempts = life.temporal.attempts
                self._ended.hours = asyncio.get_running_loop().time() / HOUR
                for task, end in self._passing:
                    task.cancel()
                    end()
                await life.stop()

    # Parts

    def _create(self) -> None:
        self._pools = [self._fake.pool(nodeCount=1, minNodeCount=0, maxNodeCount=2)]
        if self._draw.random() < _SOME:
            self._pools.append(self._fake.pool("more", nodeCount=1))
        self._life.order(*self._pools)

    def _change(self) -> None:
        draw = self._draw
        change = draw.choice(("count", "add", "remove", "retry"))
        if change == "count":
            self._pools[0] = {**self._pools[0], "maxNodeCount": draw.randint(3, 6)}
        elif change == "add":
            self._pools.append(self._fake.pool("late", nodeCount=1))
        elif change == "remove":
            self._pools = [self._fake.pool("other", nodeCount=1)]
        else:
            self._life.retry()
        self._life.order(*self._pools, removable=draw.choice(((), ("gpu", "more"))))

    async def _part(self, word: str, act: Callable[[], None]) -> None:
        self._disturb()
        await self._trouble()
        act()
        if self._draw.random() < _SOME:
            # The next order comes before this one is fulfilled.
            await self._life.pass_time(
                lambda: self._life.ready, self._draw.uniform(0, 1)
            )
            self._ended.how.append(
                f"{word}: {'Ready' if self._life.ready else 'interrupted'}"
            )
            return
        await self._meanwhile()
        ready = await self._life.until_ready(_HOURS)
        self._ended.how.append(f"{word}: {'Ready' if ready else self._reason(word)}")
        if ready and self._machines.random() < _SOME:
            await self._lose_machines()

    async def _trouble(self) -> None:
        """Begin a trouble of the cloud in some lives, which ends within hours."""
        names = sorted(self._fake.troubles)
        if not names or self._troubles.random() > _SOME:
            return
        name = self._troubles.choice(names)
        end = self._fake.troubles[name]()
        self._ended.how.append(name)
        hours = self._troubles.uniform(0.1, _TROUBLE_HOURS)

        async def passes() -> None:
            await asyncio.sleep(hours * HOUR)
            end()

        self._passing.append((asyncio.create_task(passes()), end))

    async def _lasting_trouble(self) -> Callable[[], None] | None:
        """Begin a trouble that holds up the deletion until a person acts."""
        names = sorted(self._fake.lasting)
        if not names or self._troubles.random() > _SOME:
            return None
        name = self._troubles.choice(names)
        self._ended.how.append(name)
        return self._fake.lasting[name]()

    async def _lose_machines(self) -> None:
        """Take machines from a pool after Ready, and give them back in some lives.

        Otherwise the pool keeps its condition until the end.
        """
        before = set(self._lacking())
        recover = self._fake.degrade([pool["name"] for pool in self._pools])
        if recover is None:
            return

        def lost() -> list[str]:
            return [pool for pool in self._lacking() if pool not in before]

        if not await self._life.pass_time(lambda: bool(lost()), _HOURS):
            self._ended.wrong.append("lost machines are not shown")
        self._ended.how.append("machines lost")
        self._ended.wrong += self._without_next_step()
        if self._machines.choice((True, False)):
            return
        recover()
        if not await self._life.pass_time(lambda: not lost(), _HOURS):
            self._ended.wrong.append(f"not recovered: {lost()}")
        self._ended.how.append("recovered")

    def _lacking(self) -> list[str]:
        return [
            each.pool
            for each in self._life.states
            if each.lacks_nodes and each.reason == CapacityUnavailable.__name__
        ]

    async def _delete(self) -> None:
        life = self._life
        self._disturb()
        await self._trouble()
        before = set(self._fake.remains())
        person = await self._lasting_trouble()
        others = set(self._fake.remains()) - before
        life.delete()
        await self._meanwhile()
        if person is not None:
            await life.until_gone(_HOURS)
            message = str(life.progress["message"])
            names = [each.rpartition("/")[2] for each in others]
            if not life.gone and not any(name in message for name in names):
                self._ended.wrong.append(
                    f"held up by {', '.join(others)}, and the message is {message!r}"
                )
            person()
        await life.pass_time(self._gone_or_held_up, 2 * _HOURS)
        for _ in range(_ACTS_OF_A_PERSON):
            if life.gone or not self._needs_a_person():
                break
            self._ended.wrong += self._without_next_step()
            self._ended.how.append("waits for a person")
            self._fake.person()
            self._held_up_since = asyncio.get_running_loop().time()
            await life.pass_time(self._gone_or_held_up, 2 * _HOURS)
        if not life.gone:
            self._ended.wrong.append(
                f"never deleted: {life.progress['message'] or life.progress['waitsFor']}"
            )
        self._ended.how.append("deleted")
        self._fake.person()
        named = self._named()
        if left := [
            each
            for each in self._fake.remains()
            if not each.endswith(_OF_OTHERS) and each.rpartition("/")[2] not in named
        ]:
            self._ended.wrong.append(f"remains: {', '.join(left)}")
        self._ended.wrong += [*life.temporal.defects, *self._fake.defects()]

    def _gone_or_held_up(self) -> bool:
        """Return True if the cluster is gone, or has waited for its owners for an hour."""
        now = asyncio.get_running_loop().time()
        if not self._needs_a_person():
            self._held_up_since = now
        return self._life.gone or now - self._held_up_since > HOUR

    def _names_things_of_others(self) -> bool:
        """Return True if the workflow names an object that only its owner may delete."""
        return any(
            not each.ours for each in self._life.temporal.instance.state.leftovers
        )

    def _needs_a_person(self) -> bool:
        """Return True if a person has to delete an object, or to restore its tags."""
        reasons = {each.reason for each in self._life.states}
        return self._names_things_of_others() or OwnerMarkMissing.__name__ in reasons

    def _named(self) -> str:
        """Return everything that the workflow has listed as not its own."""
        state = self._life.temporal.instance.state
        return " ".join([*state.not_owned, *(each.id for each in state.leftovers)])

    def _reason(self, word: str) -> str:
        """Return why it is not Ready.

        The workflow must report an error type and a text, and the next step of a person
        for each object with a problem.
        """
        self._ended.wrong += self._without_next_step()
        message: str = self._life.progress["message"]
        kind, _, text = message.partition(": ")
        if kind not in _types(ModelplaneError) or not text:
            self._ended.wrong.append(
                f"not {word}, and no reason: {message or self._life.progress['waitsFor']!r}"
            )
        elif kind in _types(TransientError):
            self._ended.wrong.append(
                f"not {word}, though all faults have passed and nobody has to act"
            )
        return message

    def _without_next_step(self) -> list[str]:
        """Return the objects whose state lacks the words, the time or the next step."""
        return [
            f"{each.pool or each.key} has a problem and no next step: {each}"
            for each in self._life.states
            if each.reason and not (each.message and each.since and each.next_step)
        ]

    # Disturbances

    def _disturb(self) -> None:
        faults = faults_of(self._fake, self._draw)
        self._ended.faults += faults
        self._fake.fault(*faults)
        failures: Sequence[ModelplaneError] = (
            ServerError("an internal error"),
            ClusterUnreachable("no answer"),
        )
        self._life.cluster.failures = [
            self._draw.choice(failures) for _ in range(self._draw.randint(0, 3))
        ]
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            loop.slow = self._draw.choice((0.1, 1.0, 1.0, 30.0))

    async def _meanwhile(self) -> None:
        """Cause a disturbance in the first hour, or none."""
        happening: Callable[[], Awaitable[None]] = self._draw.choice(
            (_nothing, _nothing, self._jump, self._retry, self._lose_credential)
        )
        await self._life.pass_time(lambda: self._life.gone, self._draw.uniform(0, 0.5))
        if not self._life.gone:
            await happening()

    async def _jump(self) -> None:
        self._life.clock.offset += self._draw.choice(_JUMPS)

    async def _retry(self) -> None:
        self._life.retry()

    async def _lose_credential(self) -> None:
        kept, self._life.secrets.credential = self._life.secrets.credential, None
        await self._life.pass_time(lambda: self._life.gone, self._draw.uniform(0, 2))
        self._life.secrets.credential = kept


async def _nothing() -> None:
    """Do nothing, which is the most frequent case."""


def _types(root: type[ModelplaneError]) -> set[str]:
    return {root.__name__}.union(*map(_types, root.__subclasses__()))
