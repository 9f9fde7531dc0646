"""The objects of a CloudCluster that are inside its cluster.

These are the connection, system nodes, the StorageClass of caches, and Helm releases.
Clouds have no handlers for them, because they are accessed through the API server with
a token of the cloud.
"""

from collections.abc import Callable, Mapping
from typing import Any

from activities.clients.helm.port import Chart, HelmPool, Release
from activities.clouds.desired.graph import CloudCall, DesiredObject, Fact, arguments
from activities.clouds.desired.storage_class import RESTART
from activities.clouds.lifecycle.handler import (
    ABSENT,
    CloudObservation,
    ObjectWork,
    State,
)
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    ClusterPool,
    GroupVersionKind,
    ObjectId,
    Selection,
)
from activities.observe.conditions import find_condition
from api_types.errors import (
    ClusterUnreachable,
    InvalidInput,
    NotYet,
    ReplaceRequired,
    StackMissing,
)
from api_types.labels import POD_IDENTITY, POOL, SYSTEM_NAMESPACE
from api_types.messages.clouds import (
    CONNECTION,
    HELM_RELEASE,
    STORAGE_CLASS,
    SYSTEM_NODES,
    CloudAccount,
    WorkClass,
)
from api_types.messages.cluster_work import Connection

_DEPLOYED = "deployed"
# Pods that were admitted after EKS associated their service account with a role have
# this variable.
_IDENTITY_VARIABLE = "AWS_CONTAINER_CREDENTIALS_FULL_URI"

_DEPLOYMENT = GroupVersionKind("apps/v1", "Deployment")
_NODE = GroupVersionKind("v1", "Node")
_POD = GroupVersionKind("v1", "Pod")

WORK: dict[str, WorkClass] = {
    CONNECTION: "Medium",
    STORAGE_CLASS: "Quick",
    HELM_RELEASE: "Medium",
    SYSTEM_NODES: "Medium",
}
"""The class of work for each kind."""


def connection_of(account: CloudAccount) -> Connection:
    return Connection(
        cluster=account.cluster,
        namespace=SYSTEM_NAMESPACE,
        name=account.secret,
        key="",
        cloud=account,
    )


class InCluster:
    """Handles objects in clusters."""

    def __init__(self, clusters: ClusterPool, helm: HelmPool) -> None:
        self._clusters = clusters
        self._helm = helm

    async def ensure(
        self, account: CloudAccount, wanted: ObjectWork
    ) -> CloudObservation:
        """Create or update an object.

        Raises the errors of `ClusterApi` and `HelmPort`, and NotYet for an unknown
        fact.
        """
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
                return CloudObservation(
                    State.READY,
                    id=f"{state.namespace}/{state.name}",
                    facts={"revision": str(state.revision)},
                )

    async def look(self, account: CloudAccount, wanted: ObjectWork) -> CloudObservation:
        """Observe an object. Raises the errors of `ClusterApi` and `HelmPort`."""
        match wanted.object.kind:
            case kind if kind == CONNECTION:
                return await self._connect(account)
            case kind if kind == SYSTEM_NODES:
                return await self._system_nodes(account, wanted)
            case kind if kind == STORAGE_CLASS:
                cluster = await self._clusters.at(connection_of(account))
                if await cluster.get(_storage_class(wanted.object)) is None:
                    return ABSENT
                older = list[str]()
                for each in _restarts(wanted):
                    older += await _older_pods(cluster, each)
                name = wanted.object.name
                if not older:
                    return CloudObservation(State.READY, id=name)
                reason = f"started without their identity: {', '.join(older)}"
                return CloudObservation(State.DIFFERS, id=name, reason=reason)
            case _:
                release = _release(wanted, _any)
                async with self._helm.at(connection_of(account)) as helm:
                    state = await helm.status(release.name, release.namespace)
                if state is None:
                    return ABSENT
                ready = state.status == _DEPLOYED
                return CloudObservation(
                    State.READY if ready else State.DIFFERS,
                    id=wanted.object.name,
                    reason=state.status,
                )

    async def delete(
        self, account: CloudAccount, wanted: ObjectWork
    ) -> CloudObservation:
        """Delete an object. A connection is only dropped, not deleted."""
        kind = wanted.object.kind
        if kind == STORAGE_CLASS:
            cluster = await self._clusters.at(connection_of(account))
            await cluster.delete(_storage_class(wanted.object))
        elif kind == HELM_RELEASE:
            release = _release(wanted, _any)
            async with self._helm.at(connection_of(account)) as helm:
                await helm.uninstall(release.name, release.namespace)
        return ABSENT

    async def _connect(self, account: CloudAccount) -> CloudObservation:
        cluster = await self._clusters.at(connection_of(account))
        return CloudObservation(
            State.READY, id=account.cluster, facts={"version": await cluster.version()}
        )

    async def _system_nodes(
        self, account: CloudAccount, wanted: ObjectWork
    ) -> CloudObservation:
        """Check that a node of the pool is Ready.

        Without a Ready node, no pod in the cluster starts.
        """
        cluster = await self._clusters.at(connection_of(account))
        pool = wanted.object.name
        nodes = (await cluster.list(Selection(_NODE, labels=f"{POOL}={pool}"))).items
        conditions = [
            (each.get("status") or {}).get("conditions") or [] for each in nodes
        ]
        if any(find_condition(each, "Ready").is_true for each in conditions):
            return CloudObservation(State.READY, id=pool)
        return CloudObservation(
            State.DIFFERS,
            id=pool,
            reason=f"none of {len(nodes)} nodes of pool {pool} is Ready",
        )

    async def _apply(
        self, account: CloudAccount, wanted: ObjectWork
    ) -> CloudObservation:
        cluster = await self._clusters.at(connection_of(account))
        manifest = arguments(wanted.object.calls[0], wanted.fact, "")["manifest"]
        try:
            await cluster.apply(manifest)
        except InvalidInput as error:
            if await cluster.get(_storage_class(wanted.object)) is None:
                raise
            # The parameters of a StorageClass are immutable, and claims refer to it.
            raise ReplaceRequired(
                f"StorageClass {wanted.object.name} has other parameters ({error.message}), "
                "which cannot be changed; delete it in the cluster, and it is created again"
            ) from None
        except StackMissing as error:
            raise ClusterUnreachable(error.message) from None
        for each in _restarts(wanted):
            if await _older_pods(cluster, each):
                await cluster.apply(_deployment(each))
        return CloudObservation(State.READY, id=wanted.object.name)


def _storage_class(wanted: DesiredObject) -> ObjectId:
    return ObjectId(
        GroupVersionKind("storage.k8s.io/v1", STORAGE_CLASS), "", wanted.name
    )


def _restarts(wanted: ObjectWork) -> list[dict[str, Any]]:
    """Return the arguments of the restart calls whose identity is known."""
    known = {key for key, facts in wanted.known.items() if facts.get("id")}
    calls = [call for call in wanted.object.calls if call.operation == RESTART]
    return [
        arguments(call, wanted.fact, "")
        for call in calls
        if known.issuperset(_keys(call))
    ]


def _keys(call: CloudCall) -> set[str]:
    return {each.key for each in call.parameters.values() if isinstance(each, Fact)}


def _deployment(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the change that restarts the pods of a Deployment, once per identity."""
    template = {"metadata": {"annotations": {POD_IDENTITY: given["identity"]}}}
    metadata = {"name": given["deployment"], "namespace": given["namespace"]}
    return {
        "apiVersion": _DEPLOYMENT.api_version,
        "kind": _DEPLOYMENT.kind,
        "metadata": metadata,
        "spec": {"template": template},
    }


async def _older_pods(cluster: ClusterApi, given: Mapping[str, str]) -> list[str]:
    """Return the names of a Deployment's pods that have no identity.

    Returns none if the Deployment does not exist or is being restarted.
    """
    deployment = await cluster.get(
        ObjectId(_DEPLOYMENT, given["namespace"], given["deployment"])
    )
    if deployment is None:
        return []
    spec = deployment["spec"]
    annotations = spec["template"]["metadata"].get("annotations", {})
    if annotations.get(POD_IDENTITY) == given["identity"]:
        return []
    selector = ",".join(
        f"{key}={value}" for key, value in spec["selector"]["matchLabels"].items()
    )
    pods = await cluster.list(Selection(_POD, given["namespace"], selector))
    return [
        str(each["metadata"]["name"]) for each in pods.items if not _has_identity(each)
    ]


def _has_identity(pod: Mapping[str, Any]) -> bool:
    variables = set[str]()
    for container in pod["spec"]["containers"]:
        variables |= {each["name"] for each in container.get("env", ())}
    return _IDENTITY_VARIABLE in variables


def _any(fact: Fact) -> str:
    """Return a placeholder for a fact.

    Only the name of the release is used, and the object that reported the fact may be
    gone.
    """
    return f"{fact.name} of {fact.key}"


def _release(wanted: ObjectWork, fact: Callable[[Fact], str]) -> Release:
    found = arguments(wanted.object.calls[0], fact, "")
    chart = Chart(found["chart"], found["repository"], found["version"])
    return Release(found["release"], found["namespace"], chart, found["values"])
