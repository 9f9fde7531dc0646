"""The pods of chosen engines, and the container that a command means."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from activities.cluster_objects.cluster_api import GroupVersionKind, Selection
from activities.pod_access import OpenCluster, PodId, PodStreams, open_cluster
from activities.render.objects.contract import LWS_NAME_LABEL
from api_types import labels
from api_types.hints import nearest
from api_types.settings import Settings
from client.engines.cluster_access import (
    cluster_failures,
    connection_of,
    require_direct_way,
)
from client.engines.workloads import EngineChoice, EngineWorkload, engine_workloads
from fleet_client.connection import fleet_objects
from fleet_client.errors import NotFound, Refused
from fleet_client.refs.targets import Target

_POD = GroupVersionKind("v1", "Pod")
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


class EnginePod(NamedTuple):
    """One pod of an engine, with the streams of its cluster."""

    workload: EngineWorkload
    pod: PodId
    member: str
    containers: tuple[str, ...]
    ready: bool
    streams: PodStreams

    @property
    def title(self) -> str:
        return f"pod {self.pod.name} on cluster {self.workload.cluster}"

    def container(self, wanted: str | None) -> str:
        """Return the name of the wanted container, by default the pod's first one.

        Raise `Refused` if there is none of that name.
        """
        if not wanted:
            return self.containers[0]
        if wanted in self.containers:
            return wanted
        close = nearest(wanted, self.containers)
        raise Refused(
            f"{self.title} has no container {wanted!r}"
            + (f"; did you mean {close}?" if close else ""),
            next_step=f"the names are {', '.join(self.containers)}",
        )


@asynccontextmanager
async def engine_pods(
    settings: Settings,
    verb: str,
    target: Target,
    choice: EngineChoice,
    member: str | None,
) -> AsyncIterator[list[EnginePod]]:
    """Yield the pods of the chosen engines, ready ones first.

    Raise `NotFound` if there are none.
    """
    async with fleet_objects(settings) as objects:
        workloads = await engine_workloads(
            objects, target, choice, settings.workloads.namespace
        )
        require_direct_way(verb, workloads)
        clusters = {one.cluster: one for one in workloads}
        connections = {
            name: await connection_of(objects, verb, one)
            for name, one in clusters.items()
        }
    async with AsyncExitStack() as stack:
        opened = dict[str, OpenCluster]()
        with cluster_failures():
            for name, connection in connections.items():
                opening = open_cluster(settings, connection)
                opened[name] = await stack.enter_async_context(opening)
            listed = await asyncio.gather(
                *(
                    opened[one.cluster].api.list(
                        Selection(_POD, one.namespace, labels=one.selector)
                    )
                    for one in workloads
                )
            )
        found = [
            _engine_pod(one, pod, opened[one.cluster].pods)
            for one, pods in zip(workloads, listed, strict=True)
            for pod in pods.items
        ]
        yield _of_member(found, member, target)


def _of_member(
    found: Sequence[EnginePod], member: str | None, target: Target
) -> list[EnginePod]:
    chosen = [one for one in found if member in (None, one.member)]
    if not chosen:
        whose = f"member {member} of {target.title}" if member else target.title
        known = sorted({one.member for one in found})
        raise NotFound(
            f"{whose} has no pods",
            next_step=(
                f"the names are {', '.join(known)}"
                if known
                else f"`modelplane describe {target.command}` shows the reason"
            ),
        )
    return sorted(chosen, key=lambda one: (not one.ready, one.pod))


def _engine_pod(
    workload: EngineWorkload, tree: dict[str, Any], streams: PodStreams
) -> EnginePod:
    metadata, spec = tree["metadata"], tree["spec"]
    names = [each["name"] for each in spec["containers"]]
    first = (metadata.get("annotations") or {}).get(_DEFAULT_CONTAINER)
    names.sort(key=lambda name: name != first)
    names += [each["name"] for each in spec.get("initContainers") or ()]
    conditions = (tree.get("status") or {}).get("conditions") or ()
    return EnginePod(
        workload,
        PodId(metadata["namespace"], metadata["name"]),
        _member(metadata.get("labels") or {}),
        tuple(names),
        any(row["type"] == "Ready" and row["status"] == "True" for row in conditions),
        streams,
    )


def _member(pod_labels: dict[str, str]) -> str:
    if LWS_NAME_LABEL not in pod_labels:
        return "standalone"
    return pod_labels.get(labels.LWS_ROLE, "worker")
