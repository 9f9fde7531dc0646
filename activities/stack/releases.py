"""Helm releases on a cluster: their workloads, their conflicts, and their removal."""

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from activities.clients.helm.port import Chart, HelmPort, Release, ReleaseState
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.cluster_objects.deletion import (
    list_served,
    poll_intervals,
    remaining_object,
)
from activities.cluster_objects.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    POD,
    SECRET,
    STATEFUL_SET,
    resolve,
)
from activities.heartbeat import Progress
from api_types.errors import ReleasePending
from api_types.messages.cluster_work import RemainingObject, TeardownStepResult
from api_types.messages.stack import EnsuredRelease, HelmRelease, UninstallRelease
from api_types.pins import apiversions

WORKLOADS = {
    DEPLOYMENT.kind: DEPLOYMENT,
    STATEFUL_SET.kind: STATEFUL_SET,
    DAEMON_SET.kind: DAEMON_SET,
}
RELEASE_NAME, RELEASE_NAMESPACE = (
    "meta.helm.sh/release-name",
    "meta.helm.sh/release-namespace",
)
_HOOK = "helm.sh/hook"
_INSTANCE = "app.kubernetes.io/instance"
_MANAGED_BY_HELM = "app.kubernetes.io/managed-by=Helm"
_HOOK_KINDS = (
    GroupVersionKind(apiversions.RBAC, "ClusterRole"),
    GroupVersionKind(apiversions.RBAC, "ClusterRoleBinding"),
    GroupVersionKind(apiversions.ADMISSION, "MutatingWebhookConfiguration"),
    GroupVersionKind(apiversions.ADMISSION, "ValidatingWebhookConfiguration"),
)
_WORKLOADS_MAX = 64
_SHOWN_MAX = 20
_AT_ONCE = 8
# Helm's first revision is 1.
_REVISION = re.compile(r"[0-9]{1,9}")
# The maximum length of names of releases and namespaces. An annotation may be longer.
_NAME_MAX = 253


def as_release(release: HelmRelease) -> Release:
    return Release(release.name, release.namespace, as_chart(release), release.values)


def as_chart(release: HelmRelease) -> Chart:
    return Chart(release.chart, release.repository, release.version)


async def definitions_of(helm: HelmPort, releases: Iterable[HelmRelease]) -> list[Json]:
    """Return the definitions in the `crds/` directories of the releases' charts."""
    documents = list[Json]()
    for release in releases:
        documents += await helm.crds(as_chart(release))
    return documents


class ReleaseRevision(NamedTuple):
    """A revision of a release: its number, and Helm's word for its status."""

    number: int
    status: str


async def revisions_of(
    cluster: ClusterApi, names: Collection[str]
) -> dict[tuple[str, str], ReleaseRevision]:
    """Return the newest revision of each named release, by namespace and name.

    They are read from the labels of Helm's Secrets. The contents are not read, because
    there may be thousands of Secrets of 1 MiB each, which helm would load into memory.
    """
    listed = await cluster.list(
        Selection(
            SECRET,
            labels=f"owner=helm,name in ({','.join(sorted(names))})",
            metadata_only=True,
        )
    )
    found = dict[tuple[str, str], ReleaseRevision]()
    for secret in listed.items:
        metadata = secret["metadata"]
        marks = metadata.get("labels") or {}
        place, version = (
            (str(metadata.get("namespace")), str(marks.get("name"))),
            str(marks.get("version") or ""),
        )
        number = int(version) if _REVISION.fullmatch(version) else 0
        if place[1] in names and (place not in found or number > found[place].number):
            found[place] = ReleaseRevision(number, str(marks.get("status") or ""))
    return found


async def ensure(
    helm: HelmPort,
    release: HelmRelease,
    *,
    rewrite: bool = False,
    with_definitions: bool = True,
) -> EnsuredRelease:
    """Install or upgrade a release, and return it with its workloads."""
    wanted = replace(as_release(release), with_definitions=with_definitions)
    state: ReleaseState = await helm.ensure(wanted, rewrite=rewrite)
    rendered = await helm.render(as_release(release))
    return EnsuredRelease(
        name=state.name,
        revision=state.revision,
        status=state.status,
        version=state.chart_version,
        values_digest=state.values_digest,
        workloads=list(
            islice(workloads_of(rendered, release.namespace), _WORKLOADS_MAX)
        ),
    )


def workloads_of(rendered: Iterable[Json], namespace: str) -> Iterable[str]:
    """Yield the workloads of a chart as `<Kind>/<namespace>/<name>`.

    Workloads of hooks and tests end by themselves and are left out.
    """
    for item in rendered:
        metadata = item.get("metadata") or {}
        is_hook = _HOOK in (metadata.get("annotations") or {})
        if item.get("kind") in WORKLOADS and not is_hook:
            place = metadata.get("namespace") or namespace
            yield f"{item['kind']}/{place}/{metadata.get('name')}"


def workload(text: str) -> ObjectId:
    """Parse the text form of a workload. Raises KeyError or ValueError."""
    kind, namespace, name = text.split("/")
    return ObjectId(WORKLOADS[kind], namespace, name)


async def conflicts_of(
    cluster: ClusterApi, helm: HelmPort, release: HelmRelease
) -> list[str]:
    """Return a problem for each cluster-scoped chart object of another owner."""
    served = await cluster.resources()
    targets = []
    for item in await helm.render(as_release(release)):
        resource = served.get(
            GroupVersionKind(str(item.get("apiVersion")), str(item.get("kind")))
        )
        metadata = item.get("metadata") or {}
        if (
            resource
            and not resource.namespaced
            and _HOOK not in (metadata.get("annotations") or {})
        ):
            targets.append(ObjectId(resource.kind, "", str(metadata.get("name"))))
    turn = asyncio.Semaphore(_AT_ONCE)

    async def problem(target: ObjectId) -> str:
        async with turn:
            found = await cluster.get(target)
        owner = release_of(found) if found else (release.namespace, release.name)
        if owner == (release.namespace, release.name):
            return ""
        named = f"release {owner[0]}/{owner[1]}" if owner[1] else "no release"
        return f"{target.kind.kind} {target.name} belongs to {named}"

    return [found for found in await asyncio.gather(*map(problem, targets)) if found]


def release_of(item: Json) -> tuple[str, str]:
    """Return namespace and name of the release that owns an object, or empty strings."""
    notes = item["metadata"].get("annotations") or {}
    namespace, name = (
        str(notes.get(key) or "")[:_NAME_MAX]
        for key in (RELEASE_NAMESPACE, RELEASE_NAME)
    )
    return namespace, name


# Removal


async def uninstall(
    cluster: ClusterApi,
    helm: HelmPort,
    order: UninstallRelease,
    report: Callable[[Progress], None],
) -> TeardownStepResult:
    """Uninstall a release when it is unused, and wait until its pods are gone.

    Returns the remaining objects at the time limit. A release that does not exist has
    no users: objects of its kinds belong to the same software of others.
    """
    deadline = asyncio.get_running_loop().time() + order.wait_seconds
    async for _ in poll_intervals():
        is_installed = await helm.status(order.name, order.namespace) is not None
        remaining = await _users(cluster, order) if is_installed else []
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
    """Return the users of a release: objects of its kinds, and claims of its driver."""
    found = list[RemainingObject]()
    for text in order.unused_kinds:
        version, _, name = text.rpartition("/")
        items = await list_served(
            cluster, Selection(GroupVersionKind(version, name), metadata_only=True)
        )
        found += [remaining_object(item) for item in items]
    if order.claim_drivers:
        kind = resolve(
            (f"{apiversions.DRA_GROUP}/", "ResourceClaim"), await cluster.resources()
        )
        items = await list_served(cluster, Selection(kind)) if kind else []
        found += [
            remaining_object(item)
            for item in items
            if _is_allocated_by(item, order.claim_drivers)
        ]
    return found


def _is_allocated_by(claim: Json, drivers: Sequence[str]) -> bool:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return any(result.get("driver") in drivers for result in results)


async def _remains(
    cluster: ClusterApi, helm: HelmPort, order: UninstallRelease
) -> list[RemainingObject]:
    if state := await helm.status(order.name, order.namespace):
        return [_release(order, f"its status is {state.status}")]
    await _delete_hooks(cluster, order)
    return [remaining_object(pod) for pod in await _pods(cluster, order)]


async def _delete_hooks(cluster: ClusterApi, order: UninstallRelease) -> None:
    """Delete the cluster-scoped objects of hooks, which Helm leaves behind.

    The others are in the namespace of the chart.
    """
    labels = f"{_INSTANCE}={order.name},{_MANAGED_BY_HELM}"
    for kind in _HOOK_KINDS:
        selection = Selection(kind, labels=labels, metadata_only=True)
        for item in await list_served(cluster, selection):
            metadata = item["metadata"]
            if _HOOK in (metadata.get("annotations") or {}):
                await cluster.delete(
                    ObjectId(kind, "", metadata["name"]),
                    uid=metadata["uid"],
                    propagation="Background",
                )


async def _pods(cluster: ClusterApi, order: UninstallRelease) -> list[Json]:
    """List the pods of a release, by its label and by their owners.

    Once the workloads are gone, only the label finds pods.
    """
    pods = await list_served(
        cluster, Selection(POD, order.namespace, metadata_only=True)
    )
    known = [workload(text) for text in order.workloads]
    return [
        pod
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get(_INSTANCE) == order.name
        or any(_is_of(pod, each) for each in known)
    ]


def _is_of(pod: Json, owner: ObjectId) -> bool:
    for reference in pod["metadata"].get("ownerReferences") or ():
        if (
            reference.get("kind") == owner.kind.kind
            and reference.get("name") == owner.name
        ):
            return True
        # Between a Deployment and its pods there is a ReplicaSet with the Deployment's
        # name and a suffix.
        named = str(reference.get("name") or "").rpartition("-")[0]
        if (
            owner.kind == DEPLOYMENT
            and reference.get("kind") == "ReplicaSet"
            and named == owner.name
        ):
            return True
    return False


def _release(order: UninstallRelease, why: str) -> RemainingObject:
    return RemainingObject(
        id=f"helm.sh/v1/Release/{order.namespace}/{order.name}", why=why
    )
