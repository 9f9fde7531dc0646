"""The objects of a cloud's cluster that are in the cluster itself: connection, system nodes, the StorageClass of caches, Helm releases.

No cloud has handlers of these. They are reached as every cluster is, with a token of the cloud.
"""

from collections.abc import Callable, Mapping
from typing import Any

from activities.clients.helm.port import Chart, HelmPool, Release
from activities.clouds.graph import Call, DesiredObject, Fact, arguments
from activities.clouds.lifecycle.handler import ABSENT, Found, State, Wanted
from activities.clouds.storage_class import RESTART
from activities.cluster_objects.cluster_api import ClusterApi, ClusterPool, Kind, ObjectId, Selection
from activities.observe.conditions import find_condition
from api_types.errors import ClusterUnreachable, InvalidInput, NotYet, ReplaceRequired, StackMissing
from api_types.labels import POD_IDENTITY, POOL, SYSTEM_NAMESPACE
from api_types.messages.clouds import CONNECTION, HELM_RELEASE, STORAGE_CLASS, SYSTEM_NODES, CloudAccount, WorkClass
from api_types.messages.cluster_work import Connection

_DEPLOYED = "deployed"
# Pods have it that were admitted when EKS knew the association of their service account with a role.
_IDENTITY_VARIABLE = "AWS_CONTAINER_CREDENTIALS_FULL_URI"

_DEPLOYMENT = Kind("apps/v1", "Deployment")
_NODE = Kind("v1", "Node")
_POD = Kind("v1", "Pod")

WORK: dict[str, WorkClass] = {CONNECTION: "Medium", STORAGE_CLASS: "Quick", HELM_RELEASE: "Medium", SYSTEM_NODES: "Medium"}
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
            case kind if kind == SYSTEM_NODES:
                found = await self._system_nodes(account, wanted)
                if found.state is not State.READY:
                    raise NotYet(found.reason)
                return found
            case _:
                async with self._helm.at(connection_of(account)) as helm:
                    state = await helm.ensure(_release(wanted, wanted.fact))
                return Found(State.READY, id=f"{state.namespace}/{state.name}", facts={"revision": str(state.revision)})

    async def look(self, account: CloudAccount, wanted: Wanted) -> Found:
        """Find an object. Raises what `ClusterApi` and `HelmPort` do."""
        match wanted.object.kind:
            case kind if kind == CONNECTION:
                return await self._connect(account)
            case kind if kind == SYSTEM_NODES:
                return await self._system_nodes(account, wanted)
            case kind if kind == STORAGE_CLASS:
                cluster = await self._clusters.at(connection_of(account))
                if await cluster.get(_storage_class(wanted.object)) is None:
                    return ABSENT
                older = [pod for each in _restarts(wanted) for pod in await _older_pods(cluster, each)]
                reason = f"started without their identity: {', '.join(older)}" if older else ""
                return Found(State.DIFFERS if older else State.READY, id=wanted.object.name, reason=reason)
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

    async def _system_nodes(self, account: CloudAccount, wanted: Wanted) -> Found:
        """Look for a node of the pool that is Ready: without one, what is installed in the cluster does not start."""
        cluster = await self._clusters.at(connection_of(account))
        pool = wanted.object.name
        nodes = (await cluster.list(Selection(_NODE, labels=f"{POOL}={pool}"))).items
        if any(find_condition((each.get("status") or {}).get("conditions") or [], "Ready").is_true for each in nodes):
            return Found(State.READY, id=pool)
        return Found(State.DIFFERS, id=pool, reason=f"none of {len(nodes)} nodes of pool {pool} is Ready")

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
        for each in _restarts(wanted):
            if await _older_pods(cluster, each):
                await cluster.apply(_deployment(each))
        return Found(State.READY, id=wanted.object.name)


def _storage_class(wanted: DesiredObject) -> ObjectId:
    return ObjectId(Kind("storage.k8s.io/v1", STORAGE_CLASS), "", wanted.name)


def _restarts(wanted: Wanted) -> list[dict[str, Any]]:
    """Give the arguments of the calls that restart; none while the identity is not known."""
    known = {key for key, facts in wanted.known.items() if facts.get("id")}
    calls = [call for call in wanted.object.calls if call.operation == RESTART]
    return [arguments(call, wanted.fact, "") for call in calls if known.issuperset(_keys(call))]


def _keys(call: Call) -> set[str]:
    return {each.key for each in call.parameters.values() if isinstance(each, Fact)}


def _deployment(given: Mapping[str, str]) -> dict[str, Any]:
    """Give what makes the pods of a Deployment start anew, one after the other, once for an identity."""
    template = {"metadata": {"annotations": {POD_IDENTITY: given["identity"]}}}
    metadata = {"name": given["deployment"], "namespace": given["namespace"]}
    return {"apiVersion": _DEPLOYMENT.api_version, "kind": _DEPLOYMENT.kind, "metadata": metadata, "spec": {"template": template}}


async def _older_pods(cluster: ClusterApi, given: Mapping[str, str]) -> list[str]:
    """Name the pods of a Deployment that have no identity; none where they start anew already, or it is not there."""
    deployment = await cluster.get(ObjectId(_DEPLOYMENT, given["namespace"], given["deployment"]))
    if deployment is None:
        return []
    spec = deployment["spec"]
    if spec["template"]["metadata"].get("annotations", {}).get(POD_IDENTITY) == given["identity"]:
        return []
    selector = ",".join(f"{key}={value}" for key, value in spec["selector"]["matchLabels"].items())
    pods = await cluster.list(Selection(_POD, given["namespace"], selector))
    return [str(each["metadata"]["name"]) for each in pods.items if not _has_identity(each)]


def _has_identity(pod: Mapping[str, Any]) -> bool:
    variables = [each for container in pod["spec"]["containers"] for each in container.get("env", ())]
    return any(each["name"] == _IDENTITY_VARIABLE for each in variables)


def _any(fact: Fact) -> str:
    """Stand for a fact where only the name of a release counts: what reports it may be gone."""
    return f"{fact.name} of {fact.key}"


def _release(wanted: Wanted, fact: Callable[[Fact], str]) -> Release:
    found = arguments(wanted.object.calls[0], fact, "")
    chart = Chart(found["chart"], found["repository"], found["version"])
    return Release(found["release"], found["namespace"], chart, found["values"])
