"""Google Cloud in virtual time: the fake behind the product's own provider.

Each cluster that is created has a simulated API server.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from google.cloud import container_v1

from activities.clouds.accounts import CloudAccounts
from activities.clouds.activities import CloudActivities
from activities.clouds.desired.owner import SYSTEM_POOL, owner_at
from activities.clouds.gke.provider import GkeProvider
from activities.clouds.in_cluster import InCluster
from activities.clouds.provider import Provider
from api_types.errors import CredentialsInvalid
from api_types.labels import POOL, SYSTEM_NAMESPACE
from api_types.messages.clouds import CloudAccount
from api_types.sections.clouds import GkeSettings, ProvisionSettings
from fakes.gcp.calls.faults import GcpFault
from fakes.gcp.calls.random_faults import random_faults
from fakes.gcp.fake import FakeProject
from fakes.gcp.services.world import GcpEndpoint
from tests.simulation.google import DirectClients

if TYPE_CHECKING:
    from tests.simulation.cluster import ApiServer
    from tests.simulation.parts import Parts

CREDENTIAL = "simulated-google"
SECRET = "gke-gcp"  # noqa: S105 - the name of a Secret
REGION = "europe-west4"
INSTALLATION = "simulated"
_CA = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"
_LOOK_SECONDS = 30.0
_FAULTS_PER_DAY = 12.0
_FAULTS_MAX = 4
_LOSSES_PER_DAY = 24.0
_LOSS_SECONDS_MAX = 7200.0
_Status = container_v1.NodePool.Status
_STOCKOUT = container_v1.StatusCondition(code="GCE_STOCKOUT", message="no machines")


class CloudObjectView(NamedTuple):
    """An object at a cloud; `owner` is the uid of the InferenceCluster, empty if it is unknown."""

    name: str
    owner: str


class _SimGke(GkeProvider):
    """The product's provider, with clients that the fake answers in this process."""

    def __init__(self, cloud: "GoogleInMemory", text: str, region: str) -> None:
        if text != cloud.credential:
            raise CredentialsInvalid("Google does not accept the credential")
        self._cloud = cloud
        super().__init__(
            text, region, GkeSettings(), clients=lambda _: cloud.clients, look_seconds=0.0
        )

    def cloud_cluster(self, account: CloudAccount) -> str:
        """Remember the owner of the objects with this name."""
        self._cloud.remember(account)
        return super().cloud_cluster(account)


class GoogleInMemory:
    """The cloud. It survives workers."""

    def __init__(self, parts: "Parts") -> None:
        self.parts, self.world = parts, parts.world
        self.draw: random.Random = parts.world.source("google")
        self.credential = CREDENTIAL
        self.secret = (SYSTEM_NAMESPACE, SECRET)
        self.project = FakeProject(reads=self.draw.randint(1, 20))
        self.project.connect(self._endpoint)
        self.clients = DirectClients(self.project, time.time)
        # The uid of a cluster by the digits that are in the names of its objects.
        self._owners: dict[str, str] = {}
        self._clusters: dict[str, str] = {}
        self._hosts: dict[str, str] = {}
        self.world.spawn(self._follow(), "google")
        self.world.spawn(self._fail_now_and_then(), "cloud.bad")
        self.world.spawn(self._lose_machines_now_and_then(), "cloud.machines")

    def remember(self, account: CloudAccount) -> None:
        """Remember the cluster of an account."""
        owner = owner_at(account)
        self._owners[owner.digits] = account.cluster_uid
        self._clusters[owner.base] = account.cluster

    def activities(self, pool: Any, helm: Any, store: Any) -> list[Callable[..., Any]]:
        """Return the activities of a worker on clouds, whose clients reach created clusters."""
        settings = ProvisionSettings(installation_id=INSTALLATION)

        def factory(text: str, region: str) -> Provider:
            return _SimGke(self, text, region)

        accounts = CloudAccounts(store, {"GKE": factory}, settings, time.time)
        pool.accounts = accounts
        made = CloudActivities(accounts, InCluster(pool, helm), settings, clock=time.time)
        return [
            made.plan_cloud,
            made.ensure_cloud_object,
            made.delete_cloud_object,
            made.observe_cloud,
            made.audit_cloud,
        ]

    def objects(self) -> Iterator[CloudObjectView]:
        """Return the objects at the cloud that were not there at the beginning."""
        for name in self.project.remains():
            digits = next((each for each in self._owners if each in name), "")
            yield CloudObjectView(name, self._owners.get(digits, ""))

    # Clusters

    def _endpoint(self, name: str) -> GcpEndpoint:
        base = name.rpartition("/")[2]
        host = f"{base}.gke.sim"
        self._hosts[name] = host
        self.parts.add_cloud_cluster(host, self._clusters.get(base, base))
        return GcpEndpoint(host, _CA)

    async def _follow(self) -> None:
        """Let created clusters follow their pools, and remove them with their objects."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for name, host in list(self._hosts.items()):
                found = self._object(name)
                if found is None:
                    self.parts.remove_cloud_cluster(host)
                    del self._hosts[name]
                else:
                    self._set_nodes(self.parts.servers[host], name)

    def _object(self, name: str) -> Any:
        try:
            return self.project.object_of(name)
        except KeyError:
            return None

    def _set_nodes(self, server: "ApiServer", cluster: str) -> None:
        pools = {
            name: self.project.object_of(name)
            for name in self.project.objects()
            if name.startswith(f"{cluster}/nodePools/")
        }
        wanted: dict[str, tuple[int, int]] = {}
        for pool in pools.values():
            if pool.status == container_v1.NodePool.Status.RUNNING:
                label = str(pool.config.labels.get(POOL, pool.name))
                gpus = sum(each.accelerator_count for each in pool.config.accelerators)
                wanted[label] = (_size(pool), gpus)
        for label in [*wanted, *(each for each in server.pools() if each not in wanted)]:
            count, gpus = wanted.get(label, (0, 0))
            if len(server.nodes_of(label)) != count:
                server.set_nodes(label, count, gpus)

    # Faults

    async def _fail_now_and_then(self) -> None:
        rate = _FAULTS_PER_DAY * self.draw.choice((0.0, 0.3, 1.0, 3.0))
        while rate:
            await asyncio.sleep(self.draw.expovariate(rate / 86_400))
            if self.world.clock.seconds() >= self.world.faults.last:
                self.project.clear_faults()
                return
            if self.world.faults.active:
                script: list[GcpFault] = random_faults(self.draw, self.draw.randint(1, _FAULTS_MAX))
                self.project.fault(*script)
                self.world.struck += 1
                self.world.note("fault", "cloud.bad", str(len(script)))

    async def _lose_machines_now_and_then(self) -> None:
        """Take all machines from a running pool for some time, as a stock-out does."""
        draw = self.world.source("machines")
        rate = _LOSSES_PER_DAY * draw.choice((0.0, 1.0, 3.0))
        while rate:
            await asyncio.sleep(draw.expovariate(rate / 86_400))
            if self.world.clock.seconds() >= self.world.faults.last:
                return
            running = [
                name
                for name in sorted(self.project.objects())
                if "/nodePools/" in name and self._object(name).status == _Status.RUNNING
            ]
            pools = [name for name in running if not name.endswith(f"/{SYSTEM_POOL}")]
            if not (self.world.faults.active and pools):
                continue
            name = draw.choice(pools)
            pool = self._object(name)
            pool.status, pool.conditions = _Status.RUNNING_WITH_ERROR, [_STOCKOUT]
            self.world.struck += 1
            self.world.note("fault", "cloud.machines", name)
            left = self.world.faults.last - self.world.clock.seconds()
            await asyncio.sleep(max(0.0, min(draw.uniform(600, _LOSS_SECONDS_MAX), left)))
            if pool.status == _Status.RUNNING_WITH_ERROR:
                pool.status, pool.conditions = _Status.RUNNING, []


def _size(pool: Any) -> int:
    return int(pool.initial_node_count) * max(1, len(pool.locations))
