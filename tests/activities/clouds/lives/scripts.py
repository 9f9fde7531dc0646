"""What goes wrong in one random life, drawn from its number: faults of the cloud, deaths of workers, and what people do."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from api_types.errors import ClusterUnreachable, ModelplaneError, ServerError, TransientError
from testbed.clouds.aws import faults as aws
from testbed.clouds.gcp.calls import random_faults as gcp
from testbed.clouds.gcp.calls.faults import Fault as GcpFault
from testbed.clouds.gcp.calls.faults import Slow
from tests.activities.clouds.lives.deaths import Deaths
from tests.activities.clouds.lives.life import HOUR, Fake, Life
from tests.activities.clouds.lives.virtual_time import run
from tests.simulation.clock import VirtualLoop

# Every fault passes, so at the end of this time all is Ready, unless a person has to act.
_HOURS = 6.0
_FAULTS_MAX = 6
_DEATHS_MAX = 3
_DEATH = 0.02
_NEW_RUN = 0.1
_JUMPS = (-2 * HOUR, -60.0, 60.0, HOUR, 30 * HOUR)
_SOME = 0.3
_EKS_ZONES = ("us-east-2a", "us-east-2b", "us-east-2c")
# What an etag race leaves in the policy of a project is not ours.
_OF_OTHERS = "user:other@example.com"
_VANISHING = ("CreateNodegroup", "CreateAddon", "CreateNatGateway", "CreateFileSystem")


@dataclass
class Ended:
    """How a life went: one word for each of its parts, or what it ended with in the words of the workflow."""

    number: int
    how: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What must not be."""
    attempts: list[str] = field(default_factory=list)
    faults: list[Any] = field(default_factory=list)
    hours: float = 0.0

    @property
    def line(self) -> str:
        """One line."""
        return f"{self.number:4d} {self.hours:7.1f}h  {'; '.join(self.how)}{'  WRONG: ' + '; '.join(self.wrong) if self.wrong else ''}"


def faults_of(fake: Fake, draw: random.Random) -> list[Any]:
    """Draw a script of faults."""
    count = draw.randint(0, _FAULTS_MAX)
    if fake.source == "GKE":
        script: list[GcpFault] = gcp.random_faults(draw, count)
        return [*script, *([Slow(call=draw.choice(gcp.READS), seconds=0.01, times=3)] if draw.random() < _SOME else [])]
    drawn = aws.random_script(draw, count, _EKS_ZONES)
    if draw.random() < _SOME:
        drawn.append(aws.Fault(aws.Kind.VANISH, draw.choice(_VANISHING), times=draw.randint(1, 6)))
    if draw.random() < _SOME:
        drawn.append(aws.Fault(aws.Kind.SLOW, seconds=0.01, times=3))
    return drawn


def life_of(fake: Fake, number: int, seed: int) -> Ended:
    """Live one life: create, change, delete. The same number and seed give the same life."""
    draw = random.Random(f"{seed}/{number}")  # noqa: S311 - repeatable on purpose
    ended = Ended(number)
    run(lambda: _Script(fake, draw, ended).live(), draw)
    return ended


class _Script:
    """One life."""

    def __init__(self, fake: Fake, draw: random.Random, ended: Ended) -> None:
        self._fake = fake
        self._draw = draw
        self._ended = ended
        left = draw.randint(0, _DEATHS_MAX)

        def dies(*_: str) -> bool:
            nonlocal left
            if left and draw.random() < _DEATH:
                left -= 1
                return True
            return False

        self._life = Life(fake, draw, Deaths(dies), new_runs=draw.choice((0.0, _NEW_RUN)), parallel=draw.choice((1, 3, 6)))

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
                await life.stop()

    # --- parts ------------------------------------------------------------------------------------------------------------------------

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
        act()
        if self._draw.random() < _SOME:
            # The next thing is wanted before this one is there.
            await self._life.pass_time(lambda: self._life.ready, self._draw.uniform(0, 1))
            self._ended.how.append(f"{word}: {'Ready' if self._life.ready else 'interrupted'}")
            return
        await self._meanwhile()
        ready = await self._life.until_ready(_HOURS)
        self._ended.how.append(f"{word}: {'Ready' if ready else self._reason(word)}")

    async def _delete(self) -> None:
        life = self._life
        self._disturb()
        life.delete()
        await self._meanwhile()
        if not await life.until_gone(2 * _HOURS):
            self._ended.wrong.append(f"never deleted: {life.progress['message'] or life.progress['waitsFor']}")
        self._ended.how.append("deleted")
        if left := [each for each in self._fake.remains() if not each.endswith(_OF_OTHERS)]:
            self._ended.wrong.append(f"remains: {', '.join(left)}")
        self._ended.wrong += [*life.temporal.defects, *self._fake.defects()]

    def _reason(self, word: str) -> str:
        """Give why it is not Ready. That must be said, with a type of error and a text."""
        message: str = self._life.progress["message"]
        kind, _, text = message.partition(": ")
        if kind not in _types(ModelplaneError) or not text:
            self._ended.wrong.append(f"not {word}, and no reason: {message or self._life.progress['waitsFor']!r}")
        elif kind in _types(TransientError):
            self._ended.wrong.append(f"not {word}, though all faults have passed and nobody has to act")
        return message

    # --- disturbances -----------------------------------------------------------------------------------------------------------------

    def _disturb(self) -> None:
        faults = faults_of(self._fake, self._draw)
        self._ended.faults += faults
        self._fake.fault(*faults)
        failures: Sequence[ModelplaneError] = (ServerError("an internal error"), ClusterUnreachable("no answer"))
        self._life.cluster.failures = [self._draw.choice(failures) for _ in range(self._draw.randint(0, 3))]
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            loop.slow = self._draw.choice((0.1, 1.0, 1.0, 30.0))

    async def _meanwhile(self) -> None:
        """Let something happen in the first hour, or nothing."""
        happening: Callable[[], Awaitable[None]] = self._draw.choice((_nothing, _nothing, self._jump, self._retry, self._lose_credential))
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
    """Most often nothing happens."""


def _types(root: type[ModelplaneError]) -> set[str]:
    return {root.__name__}.union(*map(_types, root.__subclasses__()))
