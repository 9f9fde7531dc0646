"""A GKE cluster at the fake Google Cloud, handled like in its workflow.

It keeps the order of objects, their facts, epochs and retries.
"""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from activities.clouds.desired.graph import (
    DesiredObject,
    creation_order,
    deletion_order,
)
from activities.clouds.desired.owner import owner_named
from activities.clouds.desired.plan import Desired
from activities.clouds.desired.wire import from_wire, to_wire
from activities.clouds.gke.provider import GkeProvider
from activities.clouds.lifecycle.delete import delete
from activities.clouds.lifecycle.ensure import ensure
from activities.clouds.lifecycle.handler import (
    CloudObservation,
    ObjectHandler,
    ObjectWork,
    State,
)
from activities.clouds.lifecycle.pace import PollPace
from activities.clouds.lifecycle.tokens import token_of
from api_types.errors import ModelplaneError, TransientError
from api_types.messages.clouds import IN_CLUSTER, AuditCloud, CloudAccount, Leftover
from api_types.resources.inference_class import InferenceClass
from api_types.sections.clouds import GkeSettings
from fakes.gcp.fake import FakeGoogle
from testbed.fake_google import FakeClients
from tests.activities.clouds.builders import INSTALLATION, UID, a_cluster, classes
from tests.simulation.google import DirectClients

REGION = "europe-west4"
SECRET = "gke-default"  # noqa: S105 - the name of a Secret
PACE = PollPace(poll=0.002, poll_later=0.002, second_look=0.02, second_look_every=0.002)
ATTEMPTS_MAX = 25


class Killed(Exception):
    """The worker died."""


class DiesAfter:
    """A handler whose worker dies once after a method took effect."""

    def __init__(self, handler: ObjectHandler, method: str) -> None:
        self._handler, self._method = handler, method

    def look(self, wanted: ObjectWork) -> CloudObservation:
        found = self._handler.look(wanted)
        if self._method == "look" and found.state in (State.PENDING, State.DELETING):
            self._method = ""
            raise Killed
        return found

    def create(self, wanted: ObjectWork) -> None:
        if self._method == "before create":
            raise Killed
        self._handler.create(wanted)
        if self._method == "create":
            raise Killed

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        self._handler.update(wanted, found)
        if self._method == "update":
            raise Killed

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        self._handler.delete(wanted, found)
        if self._method == "delete":
            raise Killed


@dataclass
class Cloud:
    """One cluster.

    `known` and `epochs` are the state of its workflow. `reports` lists the reported
    waits.
    """

    google: FakeGoogle
    provider: GkeProvider
    account: CloudAccount
    pools: list[dict[str, Any]] = field(default_factory=list)
    block: dict[str, Any] = field(default_factory=dict)
    classes: dict[str, InferenceClass] = field(default_factory=classes)
    known: dict[str, dict[str, str]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    dies: dict[str, str] = field(default_factory=dict)
    """Methods after which the worker dies, by key."""
    emptied: bool = False
    """True if users had no load balancers left."""
    _planned: tuple[str, list[DesiredObject]] = ("", [])

    def plan(self) -> Desired:
        cluster = a_cluster("GKE", *self.pools)
        gke = cluster.spec.cluster.gke
        assert gke is not None
        changed = gke.model_validate({**gke.model_dump(by_alias=True), **self.block})
        source = cluster.spec.cluster.model_copy(update={"gke": changed})
        cluster = cluster.model_copy(
            update={"spec": cluster.spec.model_copy(update={"cluster": source})}
        )
        return self.provider.plan(self.account, cluster, self.classes, self.known)

    @property
    def objects(self) -> list[DesiredObject]:
        """The objects at the cloud, as an activity receives them."""
        inputs = repr((self.pools, self.block, self.classes))
        if self._planned[0] != inputs:
            made = creation_order(self.plan().objects)
            sent = [
                to_wire(each, self.provider.work_class(each.kind))
                for each in made
                if each.kind not in IN_CLUSTER
            ]
            self._planned = inputs, [from_wire(each) for each in sent]
        return self._planned[1]

    @property
    def base(self) -> str:
        return self.provider.cloud_cluster(self.account)

    @property
    def cluster_name(self) -> str:
        return (
            f"projects/{self.account.project}/locations/{REGION}/clusters/{self.base}"
        )

    def pool_name(self, pool: str = "gpu") -> str:
        return f"{self.cluster_name}/nodePools/{pool}"

    def object(self, key: str) -> DesiredObject:
        return next(each for each in self.objects if each.key == key)

    def wanted(self, each: DesiredObject, attempt: int = 1) -> ObjectWork:
        owner, epoch = (
            owner_named(INSTALLATION, "prod", UID),
            self.epochs.get(each.key, 0),
        )
        return ObjectWork(
            owner,
            each,
            self.known,
            token_of(owner, each.key, each.name, epoch),
            epoch,
            attempt,
        )

    def handler(self, each: DesiredObject) -> ObjectHandler:
        handler = self.provider.handler(self.account, each.kind)
        assert handler is not None
        return (
            DiesAfter(handler, self.dies.pop(each.key))
            if each.key in self.dies
            else handler
        )

    async def ensure(
        self, each: DesiredObject, *, rebuilds: int = 1, attempts: int = ATTEMPTS_MAX
    ) -> CloudObservation:
        """Handle one object like activity and workflow do.

        Raises errors that need a person.
        """
        for attempt in range(1, attempts + 1):
            try:
                found = await ensure(
                    self.handler(each),
                    self.wanted(each, attempt),
                    PACE,
                    self.reports.append,
                )
            except (TransientError, Killed) as error:
                self.reports.append(str(error))
                if attempt == attempts:
                    raise
                continue
            if found.state is State.READY:
                self.known[each.key] = dict(found.facts)
                return found
            self.epochs[each.key] = self.epochs.get(each.key, 0) + 1
            self.known.pop(each.key, None)
            if found.state is State.BROKEN:
                if rebuilds == 0:
                    assert found.cause is not None
                    raise found.cause(found.reason)
                await self.delete(each)
                rebuilds -= 1
            return await self.ensure(each, rebuilds=rebuilds, attempts=attempts)
        raise AssertionError

    async def delete(
        self, each: DesiredObject, attempts: int = ATTEMPTS_MAX
    ) -> CloudObservation:
        for attempt in range(1, attempts + 1):
            try:
                found = await self._delete(each, attempt)
            except (TransientError, Killed) as error:
                self.reports.append(str(error))
                if attempt == attempts:
                    raise
                continue
            self.known.pop(each.key, None)
            return found
        raise AssertionError

    async def _delete(self, each: DesiredObject, attempt: int) -> CloudObservation:
        """Delete an object.

        Like in the activity, a later attempt searches longer for new objects.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + (10 * PACE.second_look if attempt > 1 else 0.0)
        while True:
            found = await delete(
                self.handler(each),
                self.wanted(each, attempt),
                PACE,
                self.reports.append,
            )
            if not (
                found.state is State.ABSENT and found.uncertain and loop.time() < until
            ):
                return found
            await asyncio.sleep(PACE.second_look_every)

    async def create_all(self) -> None:
        for each in self.objects:
            await self.ensure(each)

    async def delete_all(self, objects: list[DesiredObject] | None = None) -> None:
        for each in deletion_order(objects or self.objects):
            await self.delete(each)

    def looked(self, key: str) -> CloudObservation:
        each = self.object(key)
        handler = self.provider.handler(self.account, each.kind)
        assert handler is not None
        return handler.look(self.wanted(each))

    def audit(self) -> list[Leftover]:
        return list(self.provider.audit(self.order))

    @property
    def order(self) -> AuditCloud:
        return AuditCloud(
            account=self.account,
            cloud_cluster=self.base,
            keys=list(self.known),
            emptied=self.emptied,
        )

    def sweep(self) -> list[str]:
        """Delete the leftovers of the cluster, and return the errors of the others."""
        refused = []
        for each in self.audit():
            try:
                self.provider.sweep(self.order, each)
            except ModelplaneError as error:
                refused.append(error.message)
        return refused

    def writes(self) -> list[str]:
        """Return the writing calls."""
        reads = ("get", "list", "aggregated_list", "test_iam_permissions")
        calls = self.google.ledger().calls()
        return [
            f"{call.name} {call.outcome}"
            for call in calls
            if not call.method.startswith("get_") and not call.method.startswith(reads)
        ]


def a_cloud(
    google: FakeGoogle,
    *pools: dict[str, Any],
    settings: GkeSettings | None = None,
    direct: bool = True,
    **block: Any,
) -> Cloud:
    """Return a cluster that does not exist yet.

    Unless `direct`, calls go over HTTP and gRPC and carry a token.
    """
    clients = (
        DirectClients(google, time.time)
        if direct
        else FakeClients(google, google.credential)
    )
    provider = GkeProvider(
        google.credential,
        REGION,
        settings or GkeSettings(),
        clients=lambda _: clients,
        look_seconds=0.001,
    )
    account = CloudAccount(
        provider="GKE",
        cluster="prod",
        cluster_uid=UID,
        secret=SECRET,
        region=REGION,
        installation=INSTALLATION,
    )
    return Cloud(google, provider, provider.pinned(account), list(pools), block)


def run(work: Any) -> Any:
    return asyncio.run(work)


def pool_of(cloud: Cloud, name: str = "gpu") -> Any:
    return cloud.google.object_of(cloud.pool_name(name))


def cluster_of(cloud: Cloud) -> Any:
    return cloud.google.object_of(cloud.cluster_name)


def changes(cloud: Cloud) -> list[str]:
    return [call.split()[0] for call in cloud.writes() if not call.startswith("oauth2")]
