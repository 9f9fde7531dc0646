"""One cluster at a fake cloud from its first order to its end, with what people and chance do to it meanwhile."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from activities.clouds.accounts import CloudAccounts
from activities.clouds.activities import CloudActivities
from activities.clouds.in_cluster import InCluster
from activities.secrets.store import SecretMissing
from api_types import names
from api_types.messages.clouds import CloudDelete, CloudOrder
from api_types.messages.entities import RetryNow
from api_types.sections.clouds import ProvisionSettings
from tests.activities.clouds.builders import DEVICES, G6, INSTALLATION, L4, P5EN, UID
from tests.activities.clouds.lives.deaths import Deaths
from tests.activities.clouds.lives.in_cluster import Cluster, Helm
from tests.activities.clouds.lives.temporal import START, Temporal
from workflows.cloud_cluster import shown

Json = dict[str, Any]
NAME = "prod"
CLASSES: Mapping[str, Json] = {
    name: {"devices": DEVICES, "provisioning": block} for name, block in {"l4": L4, "g6": G6, "p5en": P5EN}.items()
}
HOUR = 3600.0
_LOOK_SECONDS = 20.0


@dataclass
class Fake:
    """A fake cloud: what makes providers of it, and what a test reads and changes there."""

    source: str
    region: str
    credential: str
    provider: Callable[..., Any]
    remains: Callable[[], list[str]]
    fault: Callable[..., None]
    faults_left: Callable[[], list[Any]]
    defects: Callable[[], list[str]]
    created: Callable[[], list[str]]
    """What was created, once for each time that it was."""
    pool: Callable[..., Json]


class Secrets:
    """A secret store with the credential of the cloud, while it is there."""

    def __init__(self, credential: str) -> None:
        self.credential: str | None = credential

    async def get(self, namespace: str, name: str, key: str) -> bytes:
        if key == "credentials" and self.credential is not None:
            return self.credential.encode()
        raise SecretMissing(namespace, name, key)


@dataclass
class Clock:
    """The time of a worker, which may jump."""

    offset: float = 0.0

    def __call__(self) -> float:
        return START.timestamp() + asyncio.get_running_loop().time() + self.offset


@dataclass
class Life:
    """One cluster. Made and used in a virtual loop."""

    fake: Fake
    draw: random.Random
    deaths: Deaths = field(default_factory=Deaths)
    new_runs: float = 0.0
    parallel: int = 6

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.secrets = Secrets(self.fake.credential)
        self.settings = ProvisionSettings(installation_id=INSTALLATION, max_parallel=self.parallel)
        self.accounts = self._accounts()
        self.cluster = Cluster(self.accounts, self.deaths)
        self.temporal = Temporal(names.cloud_cluster_id(NAME, UID), self._activities, self.draw, new_runs=self.new_runs)
        self.numbers = 0
        self._task: asyncio.Task[None] | None = None

    def _accounts(self) -> CloudAccounts:
        secrets: Any = self.secrets
        factory = partial(self.fake.provider, deaths=self.deaths)
        return CloudAccounts(secrets, {self.fake.source: factory}, self.settings, self.clock)

    def _activities(self) -> CloudActivities:
        cluster: Any = self.cluster
        helm: Any = Helm(self.cluster)
        return CloudActivities(self.accounts, InCluster(cluster, helm), self.settings, clock=self.clock)

    # --- messages ---------------------------------------------------------------------------------------------------------------------

    def order(self, *pools: Json, removable: tuple[str, ...] = (), **block: Any) -> None:
        """Want these pools."""
        self.numbers += 1
        cluster = {"source": self.fake.source, self.fake.source.lower(): {"region": self.fake.region, **block}}
        spec = {"cluster": cluster, **({"nodePools": list(pools)} if pools else {})}
        order = CloudOrder(
            uid=UID,
            sequence=self.numbers,
            generation=self.numbers,
            manifest={"spec": spec},
            classes=dict(CLASSES),
            removable_pools=list(removable),
        )
        self.temporal.instance.apply(order.wire())

    def delete(self, **more: Any) -> None:
        """Want nothing any more."""
        self.numbers += 1
        self.temporal.instance.delete(CloudDelete(uid=UID, sequence=self.numbers, **more).wire())

    def retry(self) -> None:
        """Make the next attempt now."""
        self.temporal.instance.retry_now(RetryNow(by="test").wire())

    # --- time -------------------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the workflow."""
        self._task = self.temporal.begin()

    @property
    def progress(self) -> Json:
        """What the workflow says of itself."""
        seen: Json = self.temporal.instance.progress()
        return seen

    @property
    def gone(self) -> bool:
        """Whether the workflow has ended. Raises what it failed with."""
        assert self._task is not None
        if not self._task.done():
            return False
        self._task.result()
        return True

    @property
    def ready(self) -> bool:
        """Whether all is as the newest order wants it."""
        state = self.temporal.instance.state
        return state.order is not None and state.planned == state.order.sequence and shown.is_ready(state)

    async def pass_time(self, until: Callable[[], bool], hours: float) -> bool:
        """Let time pass until something holds, at most so many hours; gives whether it does."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + hours * HOUR
        while not until():
            if self.gone or loop.time() > ends:
                return until()
            if self.temporal.defects:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    async def until_ready(self, hours: float = 6.0) -> bool:
        """Let time pass until everything is Ready."""
        return await self.pass_time(lambda: self.ready, hours)

    async def until_gone(self, hours: float = 12.0) -> bool:
        """Let time pass until the workflow has ended."""
        return await self.pass_time(lambda: self.gone, hours)

    async def stop(self) -> None:
        """End the workflow where it is."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        others = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)
