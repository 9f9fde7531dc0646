"""Releases on a cluster: which workloads they have, what their objects would take from others, and how they go (spec 2.7, 2.11, H9)."""

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from activities.clients.helm.port import Chart, HelmPort, Release, ReleaseState
from activities.cluster_objects.cluster_api import ClusterApi, Json, Kind, ObjectId, Selection
from activities.cluster_objects.deletion import list_served, poll_intervals, remaining_object
from activities.cluster_objects.kinds import DAEMON_SET, DEPLOYMENT, POD, SECRET, STATEFUL_SET, resolve
from activities.heartbeat import Progress
from api_types.errors import ReleasePending
from api_types.messages.cluster_work import RemainingObject, TeardownStepResult
from api_types.messages.stack import EnsuredRelease, HelmRelease, UninstallRelease
from api_types.pins import apiversions

WORKLOADS = {DEPLOYMENT.kind: DEPLOYMENT, STATEFUL_SET.kind: STATEFUL_SET, DAEMON_SET.kind: DAEMON_SET}
RELEASE_NAME, RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
_HOOK = "helm.sh/hook"
_INSTANCE = "app.kubernetes.io/instance"
_WORKLOADS_MAX = 64
_SHOWN_MAX = 20
_AT_ONCE = 8
# Helm counts revisions from 1.
_REVISION = re.compile(r"[0-9]{1,9}")
# No name of a release or a namespace is longer; an annotation may be.
_NAME_MAX = 253


def as_release(release: HelmRelease) -> Release:
    """Give a release as Helm's port takes it."""
    return Release(release.name, release.namespace, as_chart(release), release.values)


def as_chart(release: HelmRelease) -> Chart:
    """Give the chart of a release as Helm's port takes it."""
    return Chart(release.chart, release.repository, release.version)


class Revision(NamedTuple):
    """A revision of a release: its number, and Helm's word for its state."""

    number: int
    status: str


async def revisions_of(cluster: ClusterApi, names: Collection[str]) -> dict[tuple[str, str], Revision]:
    """Give the newest revision of each release of these names, by namespace and name, as the labels of Helm's Secrets say it.

    Their contents are not read: there may be thousands, of 1 MiB each, which helm would all take into memory.
    """
    listed = await cluster.list(Selection(SECRET, labels=f"owner=helm,name in ({','.join(sorted(names))})", metadata_only=True))
    found = dict[tuple[str, str], Revision]()
    for secret in listed.items:
        metadata = secret["metadata"]
        marks = metadata.get("labels") or {}
        place, version = (str(metadata.get("namespace")), str(marks.get("name"))), str(marks.get("version") or "")
        number = int(version) if _REVISION.fullmatch(version) else 0
        if place[1] in names and (place not in found or number > found[place].number):
            found[place] = Revision(number, str(marks.get("status") or ""))
    return found


async def ensure(helm: HelmPort, release: HelmRelease, *, rewrite: bool = False) -> EnsuredRelease:
    """Install or upgrade a release, and find out which workloads it has."""
    state: ReleaseState = await helm.ensure(as_release(release), rewrite=rewrite)
    rendered = await helm.render(as_release(release))
    return EnsuredRelease(
        name=state.name,
        revision=state.revision,
        status=state.status,
        version=state.chart_version,
        values_digest=state.values_digest,
        workloads=list(islice(workloads_of(rendered, release.namespace), _WORKLOADS_MAX)),
    )


def workloads_of(rendered: Iterable[Json], namespace: str) -> Iterable[str]:
    """Name the workloads among the objects of a chart, as `<Kind>/<namespace>/<name>`. Those of hooks and tests end by themselves."""
    for item in rendered:
        metadata = item.get("metadata") or {}
        if item.get("kind") in WORKLOADS and _HOOK not in (metadata.get("annotations") or {}):
            yield f"{item['kind']}/{metadata.get('namespace') or namespace}/{metadata.get('name')}"


def workload(text: str) -> ObjectId:
    """Read the name of a workload. Raises KeyError or ValueError for another text."""
    kind, namespace, name = text.split("/")
    return ObjectId(WORKLOADS[kind], namespace, name)


async def conflicts_of(cluster: ClusterApi, helm: HelmPort, release: HelmRelease) -> list[str]:
    """Say which cluster-scoped objects of a release's chart exist already and belong to another release or to nobody (case 11)."""
    served = await cluster.resources()
    targets = []
    for item in await helm.render(as_release(release)):
        resource = served.get(Kind(str(item.get("apiVersion")), str(item.get("kind"))))
        metadata = item.get("metadata") or {}
        if resource and not resource.namespaced and _HOOK not in (metadata.get("annotations") or {}):
            targets.append(ObjectId(resource.kind, "", str(metadata.get("name"))))
    turn = asyncio.Semaphore(_AT_ONCE)

    async def problem(target: ObjectId) -> str:
        async with turn:
            found = await cluster.get(target)
        owner = release_of(found) if found else (release.namespace, release.name)
        if owner == (release.namespace, release.name):
            return ""
        return f"{target.kind.kind} {target.name} belongs to {f'release {owner[0]}/{owner[1]}' if owner[1] else 'no release'}"

    return [found for found in await asyncio.gather(*map(problem, targets)) if found]


def release_of(item: Json) -> tuple[str, str]:
    """Give namespace and name of the release that an object belongs to; both empty if it belongs to none."""
    notes = item["metadata"].get("annotations") or {}
    namespace, name = (str(notes.get(key) or "")[:_NAME_MAX] for key in (RELEASE_NAMESPACE, RELEASE_NAME))
    return namespace, name


# --- removal --------------------------------------------------------------------------------------------------------------------------


async def uninstall(cluster: ClusterApi, helm: HelmPort, order: UninstallRelease, report: Callable[[Progress], None]) -> TeardownStepResult:
    """Uninstall a release that nothing uses any more, and wait until its pods are gone; gives what remains at the time limit."""
    deadline = asyncio.get_running_loop().time() + timedelta(seconds=order.wait_seconds).total_seconds()
    async for _ in poll_intervals():
        remaining = await _users(cluster, order)
        if not remaining:
            try:
                await helm.uninstall(order.name, order.namespace)
            except ReleasePending as error:
                remaining = [_release(order, error.message)]
            else:
                remaining = await _remains(cluster, helm, order)
        if not remaining or asyncio.get_running_loop().time() >= deadline:
            return TeardownStepResult(remaining=remaining[:_SHOWN_MAX])
        report({"waitingFor": [str(item) for item in remaining[:_SHOWN_MAX]]})
    raise AssertionError("poll_intervals never ends")


async def _users(cluster: ClusterApi, order: UninstallRelease) -> list[RemainingObject]:
    """Give what the release still serves: objects of its kinds, and claims that its driver has allocated."""
    found = list[RemainingObject]()
    for text in order.unused_kinds:
        version, _, name = text.rpartition("/")
        items = await list_served(cluster, Selection(Kind(version, name), metadata_only=True))
        found += [remaining_object(item) for item in items]
    if order.claim_drivers:
        kind = resolve((f"{apiversions.DRA_GROUP}/", "ResourceClaim"), await cluster.resources())
        items = await list_served(cluster, Selection(kind)) if kind else []
        found += [remaining_object(item) for item in items if _is_allocated_by(item, order.claim_drivers)]
    return found


def _is_allocated_by(claim: Json, drivers: Sequence[str]) -> bool:
    allocation = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
    return any(result.get("driver") in drivers for result in allocation.get("results") or ())


async def _remains(cluster: ClusterApi, helm: HelmPort, order: UninstallRelease) -> list[RemainingObject]:
    if state := await helm.status(order.name, order.namespace):
        return [_release(order, f"its status is {state.status}")]
    return [remaining_object(pod) for pod in await _pods(cluster, order)]


async def _pods(cluster: ClusterApi, order: UninstallRelease) -> list[Json]:
    """List the pods of a release: by its label, and those of its workloads, by which nothing is found once they are gone."""
    pods = await list_served(cluster, Selection(POD, order.namespace, metadata_only=True))
    known = [workload(text) for text in order.workloads]
    return [
        pod
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get(_INSTANCE) == order.name or any(_is_of(pod, each) for each in known)
    ]


def _is_of(pod: Json, owner: ObjectId) -> bool:
    for reference in pod["metadata"].get("ownerReferences") or ():
        if reference.get("kind") == owner.kind.kind and reference.get("name") == owner.name:
            return True
        # Between a Deployment and its pods there is a ReplicaSet, named after it.
        named = str(reference.get("name") or "").rpartition("-")[0]
        if owner.kind == DEPLOYMENT and reference.get("kind") == "ReplicaSet" and named == owner.name:
            return True
    return False


def _release(order: UninstallRelease, why: str) -> RemainingObject:
    return RemainingObject(id=f"helm.sh/v1/Release/{order.namespace}/{order.name}", why=why)
