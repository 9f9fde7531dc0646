"""The objects of a cloud's cluster that are in the cluster itself: its connection, the StorageClass of caches, Helm releases.

No cloud has handlers of these. They are reached as every cluster is, with a token of the cloud.
"""

from collections.abc import Callable

from activities.clients.helm.port import Chart, HelmPool, Release
from activities.clouds.graph import DesiredObject, Fact, arguments
from activities.clouds.lifecycle.handler import ABSENT, Found, State, Wanted
from activities.cluster_objects.cluster_api import ClusterPool, Kind, ObjectId
from api_types.errors import ClusterUnreachable, InvalidInput, ReplaceRequired, StackMissing
from api_types.labels import SYSTEM_NAMESPACE
from api_types.messages.clouds import CONNECTION, HELM_RELEASE, STORAGE_CLASS, CloudAccount, WorkClass
from api_types.messages.cluster_work import Connection

_DEPLOYED = "deployed"

WORK: dict[str, WorkClass] = {CONNECTION: "Medium", STORAGE_CLASS: "Quick", HELM_RELEASE: "Medium"}
"""How long the work on each kind may take."""


def connection_of(account: CloudAccount) -> Connection:
    """Give the connection to the cluster of an account."""
    return Connection(cluster=account.cluster, namespace=SYSTEM_NAMESPACE, name=account.secret, key="", cloud=account)


class InCluster:
    """What is done in clusters."""

    def __init__(self, clusters: ClusterPool, helm: HelmPool) -> None:
        self._clusters = clusters
        self._helm = helm

    async def ensure(self, account: CloudAccount, wanted: Wanted) -> Found:
        """Make an object as it is wanted. Raises what `ClusterApi` and `HelmPort` do, and NotYet for a fact that is not known."""
        match wanted.object.kind:
            case kind if kind == CONNECTION:
                return await self._connect(account)
            case kind if kind == STORAGE_CLASS:
                return await self._apply(account, wanted)
            case _:
                async with self._helm.at(connection_of(account)) as helm:
                    state = await helm.ensure(_release(wanted, wanted.fact))
                return Found(State.READY, id=f"{state.namespace}/{state.name}", facts={"revision": str(state.revision)})

    async def look(self, account: CloudAccount, wanted: Wanted) -> Found:
        """Find an object. Raises what `ClusterApi` and `HelmPort` do."""
        match wanted.object.kind:
            case kind if kind == CONNECTION:
                return await self._connect(account)
            case kind if kind == STORAGE_CLASS:
                cluster = await self._clusters.at(connection_of(account))
                found = await cluster.get(_storage_class(wanted.object))
                return ABSENT if found is None else Found(State.READY, id=wanted.object.name)
            case _:
                release = _release(wanted, _any)
                async with self._helm.at(connection_of(account)) as helm:
                    state = await helm.status(release.name, release.namespace)
                if state is None:
                    return ABSENT
                ready = state.status == _DEPLOYED
                return Found(State.READY if ready else State.DIFFERS, id=wanted.object.name, reason=state.status)

    async def delete(self, account: CloudAccount, wanted: Wanted) -> Found:
        """Delete an object. A connection is only forgotten."""
        kind = wanted.object.kind
        if kind == STORAGE_CLASS:
            cluster = await self._clusters.at(connection_of(account))
            await cluster.delete(_storage_class(wanted.object))
        elif kind == HELM_RELEASE:
            release = _release(wanted, _any)
            async with self._helm.at(connection_of(account)) as helm:
                await helm.uninstall(release.name, release.namespace)
        return ABSENT

    async def _connect(self, account: CloudAccount) -> Found:
        cluster = await self._clusters.at(connection_of(account))
        return Found(State.READY, id=account.cluster, facts={"version": await cluster.version()})

    async def _apply(self, account: CloudAccount, wanted: Wanted) -> Found:
        cluster = await self._clusters.at(connection_of(account))
        manifest = arguments(wanted.object.calls[0], wanted.fact, "")["manifest"]
        try:
            await cluster.apply(manifest)
        except InvalidInput as error:
            if await cluster.get(_storage_class(wanted.object)) is None:
                raise
            # What a StorageClass says can never be changed, and claims name it.
            raise ReplaceRequired(f"StorageClass {wanted.object.name} has other parameters ({error.message}); delete it") from None
        except StackMissing as error:
            raise ClusterUnreachable(error.message) from None
        return Found(State.READY, id=wanted.object.name)


def _storage_class(wanted: DesiredObject) -> ObjectId:
    return ObjectId(Kind("storage.k8s.io/v1", STORAGE_CLASS), "", wanted.name)


def _any(fact: Fact) -> str:
    """Stand for a fact where only the name of a release counts: what reports it may be gone."""
    return f"{fact.name} of {fact.key}"


def _release(wanted: Wanted, fact: Callable[[Fact], str]) -> Release:
    found = arguments(wanted.object.calls[0], fact, "")
    chart = Chart(found["chart"], found["repository"], found["version"])
    return Release(found["release"], found["namespace"], chart, found["values"])
