"""The activities that connect to a cluster, watch it, and empty it before its deletion."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.client import Client

from activities.caller import check_caller
from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, ClusterPool, ObjectId
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.closed_replicas import ClosedReplicas, DeploymentNotifier
from activities.clusters.connection_wait import ConnectionRetry
from activities.clusters.emptying import empty
from activities.clusters.facts import discovered_facts
from activities.clusters.permissions import Usage, check_permissions
from activities.clusters.probe import probed_facts
from activities.clusters.rotated_secrets import RotationNotifier, SourceVersions
from activities.clusters.watch.capacity_tracker import capacity_tracker
from activities.clusters.watch.cluster_watch import ClusterWatch
from activities.clusters.watch.gateway_probe import Answers, GatewayProbe
from activities.clusters.watch.observation_index import REPLICA
from activities.heartbeat import heartbeating
from activities.observe.cache import MODEL_CACHE
from activities.observe.gateway import observe_gateway
from activities.secrets.store import SecretReader
from activities.watching.absent import Search, owners_of_others
from activities.watching.running import (
    RUN,
    deliver,
    this_run,
    until_first_ends,
    until_shutdown,
)
from api_types import labels
from api_types.errors import InvalidInput
from api_types.messages.caches import CacheAccount
from api_types.messages.cluster_work import (
    AwaitConnection,
    ClusterFacts,
    Connect,
    EmptyCluster,
    TeardownStepResult,
    WatchCluster,
)
from api_types.messages.delivery import EntityRef
from api_types.messages.observations import Observed
from api_types.messages.scheduling import ReplicaAccount
from api_types.messages.signals import ObservedSignals

_KIND = "InferenceCluster"
_HEARTBEAT_SECONDS = 10.0
# The query of replicas and caches that `_find_absent` sends.
_ACCOUNT = "account"


class ClusterActivities:
    """Activities of an InferenceCluster on its cluster.

    `settings` are returned to workflows as part of the facts. `toleration_keys` are
    keys of taints that engine pods tolerate because of the settings, and `usage` lists
    the features that the settings use on every cluster. Without `gateway_answers`,
    watches do not ask gateways.
    """

    def __init__(
        self,
        clusters: ClusterPool,
        *,
        settings: Mapping[str, int | str] | None = None,
        toleration_keys: Sequence[str] = (),
        store: SecretReader | None = None,
        usage: Usage | None = None,
        gateway_answers: Answers | None = None,
    ) -> None:
        self._clusters = clusters
        self._settings = settings or {}
        self._toleration_keys = toleration_keys
        self._usage = usage or Usage()
        self._gateway_answers = gateway_answers
        self._closed_replicas = ClosedReplicas()
        self._versions = SourceVersions(store) if store else None

    @activity.defn
    async def connect_cluster(self, order: Connect) -> ClusterFacts:
        """Connect to the cluster, check the permissions, and discover its APIs.

        Raises CredentialsInvalid, PermissionDenied or ClusterUnreachable, each with the
        next step.
        """
        check_caller(_KIND, "", order.connection.cluster)
        return await self._find_facts(await self._clusters.at(order.connection), order)

    async def _find_facts(self, cluster: ClusterApi, order: Connect) -> ClusterFacts:
        version = await cluster.version()
        served = await cluster.resources(refresh=True)
        usage = replace(
            self._usage,
            capacity_adapter=order.capacity_adapter,
            scheduler_type=order.scheduler_type,
        )
        await check_permissions(cluster, order.connection.cluster, served, usage)
        gateway = observe_gateway(
            await cluster.get(
                ObjectId(kinds.GATEWAY, labels.SYSTEM_NAMESPACE, labels.GATEWAY_NAME)
            )
        )
        facts = discovered_facts(version, served, self._settings)
        return facts.model_copy(
            update={
                **await probed_facts(cluster, served),
                "gateway_address": gateway.address,
                "gateway_message": gateway.message,
            }
        )

    @activity.defn
    async def await_connection(self, order: AwaitConnection) -> None:
        """Return when an attempt to connect succeeds or fails in another way.

        Raises a TransientError when its worker shuts down, so that another worker takes
        over at once.
        """
        connection = order.connection
        check_caller(_KIND, "", connection.cluster)

        async def attempt(cluster: ClusterApi) -> None:
            await self._find_facts(cluster, order)

        wait = ConnectionRetry(
            partial(self._clusters.at, connection),
            attempt,
            order.failure_type,
            order.failure_message,
        )
        async with heartbeating(_HEARTBEAT_SECONDS):
            await until_first_ends(wait.run(), until_shutdown())

    @activity.defn
    async def await_worker(self) -> None:
        """Return at once.

        The completion proves that a worker with a free slot serves the queue.
        """

    @activity.defn
    async def watch_cluster(self, order: WatchCluster) -> None:
        """Watch a cluster, and signal `observed` to the owners of its objects.

        Owners are the cluster itself, replicas and caches. The watch ends when it is
        cancelled. It also signals deployments when the workflows of their replicas on
        the cluster were closed, and replicas and caches when the secret store has a
        newer version of a copy that they use there. Raises a TransientError when its
        worker shuts down, so that another worker takes over at once.
        """
        check_caller(_KIND, "", order.connection.cluster)
        owner = ObjectOwner(_KIND, "", order.connection.cluster, order.cluster_uid)
        run = this_run(order.number, order.began)
        watch = ClusterWatch(
            owner,
            partial(self._clusters.at, order.connection),
            partial(_signal, activity.client(), owner, run),
            partial(_find_absent, order.connection.cluster),
            capacity=capacity_tracker(
                order.capacity_adapter,
                order.connection.cluster,
                self._toleration_keys,
                order.tolerations,
            ),
            settings=self._settings,
            gateway=self._gateway_probe(order),
        )
        client, cluster = activity.client(), order.connection.cluster
        closed = DeploymentNotifier(
            self._closed_replicas, client, cluster, watch.repeat
        )
        parts = [watch.run(), closed.run(), _heartbeat(watch, run), until_shutdown()]
        if self._versions:
            rotated = RotationNotifier(
                self._versions, client, watch.copies, watch.owners
            )
            parts.append(rotated.run())
        await until_first_ends(*parts)

    def _gateway_probe(self, order: WatchCluster) -> GatewayProbe | None:
        if self._gateway_answers is None:
            return None
        scheme = str(self._settings.get("gateway_scheme", "http"))
        return GatewayProbe(self._gateway_answers, scheme, order.gateway_address)

    @activity.defn
    async def empty_cluster(self, order: EmptyCluster) -> TeardownStepResult:
        """Delete the load balancers and volumes of a cluster before its cloud does.

        Returns the remaining objects at the time limit. Raises InvalidInput for a
        cluster that Modelplane did not create.
        """
        connection = order.connection
        check_caller(_KIND, "", connection.cluster)
        if connection.cloud is None:
            raise InvalidInput(
                f"Modelplane did not create cluster {connection.cluster} at a cloud and does "
                "not empty it"
            )
        cluster = await self._clusters.at(connection)
        async with heartbeating(_HEARTBEAT_SECONDS) as report:
            return await empty(cluster, order, report)


async def _signal(
    client: Client,
    cluster: ObjectOwner,
    run: int,
    owner: ObjectOwner,
    observed: Observed,
) -> bool:
    order = observed.order.model_copy(
        update={"cluster": cluster.name, "cluster_uid": cluster.uid, "run": run}
    )
    request = ObservedSignals.OBSERVED.request(
        EntityRef(owner.workflow_id), observed.model_copy(update={"order": order})
    )
    return await deliver(client, request)


def _find_absent(cluster: str, here: frozenset[str]) -> AsyncIterator[ObjectOwner]:
    """Yield owners that should have objects on a cluster, but are not in `here`."""

    def replica(_: str, answer: Any) -> ObjectOwner | None:
        found = ReplicaAccount.model_validate(answer)
        return (
            None
            if found.deleting
            else ObjectOwner(REPLICA, found.namespace, found.name, found.uid)
        )

    def cache(_: str, answer: Any) -> ObjectOwner | None:
        found = CacheAccount.model_validate(answer)
        return (
            ObjectOwner(MODEL_CACHE, found.namespace, found.name, found.uid)
            if cluster in found.clusters
            else None
        )

    # Caches span clusters, so visibility cannot select them by cluster.
    searches = [
        Search(REPLICA, _ACCOUNT, replica, cluster),
        Search(MODEL_CACHE, _ACCOUNT, cache),
    ]
    return owners_of_others(searches, here)


async def _heartbeat(watch: ClusterWatch, run: int) -> None:
    while True:
        activity.heartbeat({**watch.counts(), RUN: run})
        await asyncio.sleep(_HEARTBEAT_SECONDS)
