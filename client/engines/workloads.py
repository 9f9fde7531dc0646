"""The engines of a deployment or replica: cluster, namespace and label selector of each.

The objects of the fleet say all of it, so that the search needs no access to a cluster.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from activities.render.objects.contract import LWS_NAME_LABEL
from api_types import labels
from api_types.hints import nearest
from api_types.resources.kinds import BY_KIND
from api_types.setting_types import MIRROR
from fleet_client.errors import NotFound, Refused
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target, objects_named
from fleet_client.refs.tree import Tree, at_path

_DEPLOYMENT, _REPLICA = "ModelDeployment", "ModelReplica"


class EngineChoice(NamedTuple):
    """The replica and the engine that a user named; empty for all."""

    replica: str = ""
    engine: str = ""


class EngineWorkload(NamedTuple):
    """One engine of one replica on its cluster."""

    cluster: str
    namespace: str
    replica: str
    engine: str
    selector: str

    def kubectl(self, verb: str) -> str:
        """Return the command for its pods, for users with access to the cluster."""
        where = f"-n {self.namespace} -l {self.selector}"
        if verb == "logs":
            return f"cluster {self.cluster}: kubectl logs {where}"
        return f"cluster {self.cluster}: kubectl get pods {where}"


def engines_target(word: str, namespace: str | None) -> Target:
    """Parse `md/NAME` or `mr/NAME`. Raise `Refused`."""
    if "/" not in word:
        raise Refused(
            f"{word!r} does not name a deployment or a replica",
            next_step="write `md/NAME` or `mr/NAME`, with -n for its namespace",
        )
    (target,) = objects_named([word], namespace)
    if target.kind.kind not in (_DEPLOYMENT, _REPLICA):
        raise Refused(
            f"{target.title} has no engines",
            next_step="name a deployment or a replica: `md/NAME` or `mr/NAME`",
        )
    return target


async def engine_workloads(
    objects: FleetObjects, target: Target, choice: EngineChoice, pods_namespace: str
) -> list[EngineWorkload]:
    """Return the chosen engines, by replica and engine.

    `pods_namespace` is the setting `workloads.namespace`. Raise `NotFound` if there are
    none, and `Refused` for an unknown name.
    """
    replicas = await _replicas(objects, target)
    if choice.replica:
        replicas = _named(replicas, choice.replica, target)
    found = [
        workload for tree in replicas for workload in _workloads(tree, pods_namespace)
    ]
    if not found:
        raise NotFound(
            f"{target.title} has no engine on a cluster yet",
            next_step=f"`modelplane explain {target.command}` shows the reason",
        )
    if not choice.engine:
        return found
    chosen = [one for one in found if one.engine == choice.engine]
    if not chosen:
        raise _unknown("engine", choice.engine, {one.engine for one in found}, target)
    return chosen


async def _replicas(objects: FleetObjects, target: Target) -> list[Tree]:
    tree = await objects.describe(target)
    if target.kind.kind == _REPLICA:
        return [tree]
    listed = await objects.list(
        BY_KIND[_REPLICA], target.namespace, deployment=target.name
    )
    return [one.tree for one in listed]


def _named(replicas: Sequence[Tree], name: str, target: Target) -> list[Tree]:
    """Return the replica with a name, or with the part of it after the deployment's."""
    names = {str(at_path(tree, ".metadata.name")): tree for tree in replicas}
    found = names.get(name) or names.get(f"{target.name}-{name}")
    if found is None:
        raise _unknown("replica", name, names, target)
    return [found]


def _workloads(replica: Tree, pods_namespace: str) -> list[EngineWorkload]:
    namespace = str(at_path(replica, ".metadata.namespace") or "")
    return [
        EngineWorkload(
            cluster=str(at_path(replica, ".spec.clusterName") or ""),
            namespace=namespace if pods_namespace == MIRROR else pods_namespace,
            replica=str(at_path(replica, ".metadata.name")),
            engine=str(engine.get("name")),
            selector=f"{_label(engine)}={engine['workloadName']}",
        )
        for engine in at_path(replica, ".status.engines") or ()
        if engine.get("workloadName")
    ]


def _label(engine: Tree) -> str:
    gang = engine.get("kind") == "LeaderWorkerSet"
    return LWS_NAME_LABEL if gang else labels.WORKLOAD


def _unknown(what: str, name: str, known: Iterable[str], target: Target) -> Refused:
    names = sorted(known)
    close = nearest(name, names)
    return Refused(
        f"{target.title} has no {what} {name!r}"
        + (f"; did you mean {close}?" if close else ""),
        next_step=f"the names are {', '.join(names) or 'none'}",
    )
