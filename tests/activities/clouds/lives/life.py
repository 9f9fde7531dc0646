"""One cluster at a fake cloud from its first order to its end, with random
disturbances.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from activities.clouds.accounts import CloudAccounts
from activities.clouds.activities import CloudActivities
from activities.clouds.in_cluster import InCluster
from activities.secrets.store import SecretMissing
from api_types import names
from api_types.messages.clouds import CloudDelete, CloudObjectState, CloudOrder
from api_types.messages.entities import RetryNow
from api_types.sections.clouds import ProvisionSettings
from tests.activities.clouds.builders import DEVICES, G6, INSTALLATION, L4, P5EN, UID
from tests.activities.clouds.lives.deaths import Deaths
from tests.activities.clouds.lives.in_cluster import Cluster, Helm
from tests.activities.clouds.lives.temporal import START, Temporal
from workflows.cloud_cluster import readiness

Json = dict[str, Any]
NAME = "prod"
CLASSES: Mapping[str, Json] = {
    name: {"devices": DEVICES, "provisioning": block}
    for name, block in {"l4": L4, "g6": G6, "p5en": P5EN}.items()
}
HOUR = 3600.0
_LOOK_SECONDS = 20.0


@dataclass
class Fake:
    """A fake cloud: the factory of its providers, and its state for tests."""

    source: str
    region: str
    credential: str
    provider: Callable[..., Any]
    remains: Callable[[], list[str]]
    fault: Callable[..., None]
    faults_left: Callable[[], list[Any]]
    defects: Callable[[], list[str]]
    created: Callable[[], list[str]]
    """The created objects, once per creation."""
    degrade: Callable[[Collection[str]], Callable[[], None] | None]
    """Take machines from one of these pools; the result gives them back.

    None if none of the pools runs.
    """
    pool: Callable[..., Json]
    troubles: Mapping[str, Callable[[], Callable[[], None]]] = field(
        default_factory=dict
    )
    """Troubles by name. Each returns the function that ends it."""
    lasting: Mapping[str, Callable[[], Callable[[], None]]] = field(
        default_factory=dict
    )
    """Troubles that a person ends, and that hold up a deletion."""
    person: Callable[[], None] = lambda: None
    """Deletes the objects of others that block a deletion, as their owners would."""


class Secrets:
    """A secret store with the credential of the cloud, while it exists."""

    def __init__(self, credential: str) -> None:
        self.credential: str | None = credential

    async def get(self, namespace: str, name: str, key: str) -> bytes:
        if key == "credentials" and self.credential is not None:
            return self.credential.encode()
        raise SecretMissing(namespace, name, key)


@dataclass
class Clock:
    """The clock of a worker, which may jump."""

    offset: float = 0.0

    def __call__(self) -> float:
        return START.timestamp() + asyncio.get_running_loop().time() + self.offset


@dataclass
class Life:
    """One cluster. It is created and used in a virtual loop."""

    fake: Fake
    draw: random.Random
    deaths: Deaths = field(default_factory=Deaths)
    new_runs: float = 0.0
    parallel: int = 6

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.secrets = Secrets(self.fake.credential)
        self.settings = ProvisionSettings(
            installation_id=INSTALLATION, max_parallel=self.parallel
        )
        self.accounts = self._accounts()
        self.cluster = Cluster(self.accounts, self.deaths)
        self.temporal = Temporal(
            names.cloud_cluster_id(NAME, UID),
            self._activities,
            self.draw,
            new_runs=self.new_runs,
        )
        self.numbers = 0
        self._task: asyncio.Task[None] | None = None

    def _accounts(self) -> CloudAccounts:
        secrets: Any = self.secrets
        factory = partial(self.fake.provider, deaths=self.deaths)
        return CloudAccounts(
            secrets, {self.fake.source: factory}, self.settings, self.clock
        )

    def _activities(self) -> CloudActivities:
        cluster: Any = self.cluster
        helm: Any = Helm(self.cluster)
        return CloudActivities(
            self.accounts, InCluster(cluster, helm), self.settings, clock=self.clock
        )

    # Messages

    def order(
        self, *pools: Json, removable: tuple[str, ...] = (), **block: Any
    ) -> None:
        """Order these pools."""
        self.numbers += 1
        cluster = {
            "source": self.fake.source,
            self.fake.source.lower(): {"region": self.fake.region, **block},
        }
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
        """Order the deletion."""
        self.numbers += 1
        self.temporal.instance.delete(
            CloudDelete(uid=UID, sequence=self.numbers, **more).wire()
        )

    def retry(self) -> None:
        """Make the next attempt now."""
        self.temporal.instance.retry_now(RetryNow(by="test").wire())

    # Time

    def begin(self) -> None:
        """Start the workflow."""
        self._task = self.temporal.begin()

    @property
    def progress(self) -> Json:
        """Return the progress that the workflow reports."""
        seen: Json = self.temporal.instance.progress()
        return seen

    @property
    def states(self) -> list[CloudObjectState]:
        """Return the states that the workflow reports to the InferenceCluster."""
        instance = self.temporal.instance
        return readiness.states_of(instance.state, instance.calls.keys)

    @property
    def gone(self) -> bool:
        """Return True if the workflow has ended. Raises its failure."""
        assert self._task is not None
        if not self._task.done():
            return False
        self._task.result()
        return True

    @property
    def ready(self) -> bool:
        """Return True if the newest order is fulfilled."""
        state = self.temporal.instance.state
        return (
            state.order is not None
            and state.planned == state.order.sequence
            and readiness.is_complete(state)
        )

    async def pass_time(self, until: Callable[[], bool], hours: float) -> bool:
        """Let time pass until a condition holds. Returns False after so many hours."""
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
        """Stop the workflow in its current state."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        others = [
            each for each in asyncio.all_tasks() if each is not asyncio.current_task()
        ]
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)
