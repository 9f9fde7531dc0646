"""A cluster at a fake AWS, handled like in its workflow.

Objects are handled one after the other, each until it is Ready or gone.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from activities.clouds.desired.graph import (
    DesiredObject,
    creation_order,
    deletion_order,
)
from activities.clouds.desired.owner import owner_at
from activities.clouds.desired.plan import Desired
from activities.clouds.desired.wire import from_wire, to_wire
from activities.clouds.eks.provider import EksProvider
from activities.clouds.lifecycle.delete import delete
from activities.clouds.lifecycle.ensure import ensure
from activities.clouds.lifecycle.handler import CloudObservation, ObjectWork, State
from activities.clouds.lifecycle.pace import PollPace
from activities.clouds.lifecycle.tokens import token_of
from api_types.errors import TransientError
from api_types.messages.clouds import AuditCloud, CloudAccount
from api_types.sections.clouds import EksSettings
from fakes.aws.fake import FakeAws
from tests.activities.clouds.builders import (
    INSTALLATION,
    UID,
    a_cluster,
    an_eks_pool,
    classes,
)

FAST = PollPace(poll=0.002, poll_later=0.002, second_look=0.3, second_look_every=0.01)
ATTEMPTS_MAX = 40


@dataclass
class World:
    """One cluster with its inventory. Each worker gets a new `provider`."""

    aws: FakeAws
    account: CloudAccount
    provider: EksProvider
    known: dict[str, dict[str, str]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    attempts_max: int = ATTEMPTS_MAX

    def plan(
        self, *pools: dict[str, Any], known: dict[str, Any] | None = None, **block: Any
    ) -> Desired:
        """Plan the cluster with these pools."""
        manifest = a_cluster("EKS", *(pools or (an_eks_pool(),)), **block)
        return self.provider.plan(
            self.account, manifest, known or classes(), self.known
        )

    def wanted(self, each: DesiredObject, attempt: int = 1) -> ObjectWork:
        """Return the lifecycle's input, after serialization through Temporal."""
        sent = to_wire(each, self.provider.work_class(each.kind))
        epoch = self.epochs.get(each.key, 0)
        owner = owner_at(self.account)
        return ObjectWork(
            owner,
            from_wire(sent),
            self.known,
            token_of(owner, each.key, sent.digest, epoch),
            epoch,
            attempt,
        )

    def look(self, each: DesiredObject) -> CloudObservation:
        """Observe an object, like the periodic check for drift."""
        handler = self.provider.handler(self.account, each.kind)
        assert handler is not None
        return handler.look(self.wanted(each))

    async def ensure(self, each: DesiredObject) -> CloudObservation:
        """Bring an object to Ready.

        Transient errors are retried, and a broken or deleted object is created once
        more.
        """
        for _ in range(4):
            found = await self._attempts(each, ensure)
            if found.state is State.READY:
                self.known[each.key] = dict(found.facts)
                return found
            if found.state is State.BROKEN:
                if each.key in self.rebuilt:
                    raise (found.cause or AssertionError)(f"{each.key}: {found.reason}")
                self.rebuilt.append(each.key)
                await self._attempts(each, delete)
            self.epochs[each.key] = self.epochs.get(each.key, 0) + 1
            self.known.pop(each.key, None)
        raise AssertionError(f"{each.key} is never Ready")

    async def delete(self, each: DesiredObject) -> CloudObservation:
        """Delete an object."""
        found = await self._attempts(each, delete)
        self.known.pop(each.key, None)
        return found

    async def create_all(self, desired: Iterable[DesiredObject]) -> None:
        """Create all objects at the cloud."""
        for each in creation_order(list(desired)):
            if self.provider.handler(self.account, each.kind) is not None:
                await self.ensure(each)

    async def delete_all(self, desired: Iterable[DesiredObject]) -> None:
        """Delete all objects at the cloud."""
        for each in deletion_order(list(desired)):
            if self.provider.handler(self.account, each.kind) is not None:
                await self.delete(each)

    def audit(self, *, emptied: bool = False) -> AuditCloud:
        """Return the order of an audit.

        `emptied` means that users had no load balancers.
        """
        cluster = self.provider.cloud_cluster(self.account)
        return AuditCloud(
            account=self.account,
            cloud_cluster=cluster,
            known=self.known,
            emptied=emptied,
        )

    def restart(self) -> None:
        """Start another worker without any memory."""
        self.provider = provider_of(self.aws)

    async def _attempts(
        self, each: DesiredObject, work: Callable[..., Any]
    ) -> CloudObservation:
        for attempt in range(1, self.attempts_max + 1):
            handler = self.provider.handler(self.account, each.kind)
            try:
                found: CloudObservation = await work(
                    handler, self.wanted(each, attempt), FAST, self.reports.append
                )
            except TransientError as error:
                self.reports.append(f"{each.key}: {error.message}")
                if attempt == self.attempts_max:
                    raise
                await asyncio.sleep(0.005)
            else:
                return found
        raise AssertionError(f"{each.key} is never done")


def provider_of(aws: FakeAws, settings: EksSettings | None = None) -> EksProvider:
    """Return the provider with the credential of the account."""
    return EksProvider(
        aws.credential.text, aws.region, settings or EksSettings(), aws.url
    )


def world_of(aws: FakeAws, **more: Any) -> World:
    """Return a cluster that does not exist yet."""
    names = {
        "cluster": "prod",
        "cluster_uid": UID,
        "secret": "eks-default",
        "installation": INSTALLATION,
    }
    account = CloudAccount(provider="EKS", region=aws.region, **names)
    provider = provider_of(aws)
    return World(aws, provider.pinned(account), provider, **more)
