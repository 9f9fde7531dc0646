"""A cluster that returns arbitrary objects.

Activities raise only errors of this project, and every result is bounded.
"""

import asyncio
import copy
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest
from pydantic_core import to_json

from activities.clients.helm.port import HelmPool, HelmPort, Release, ReleaseState
from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ApiResource,
    ClusterApi,
    ClusterPool,
    GroupVersionKind,
    Json,
    Keep,
    ObjectId,
    ObjectList,
    Selection,
    whole,
)
from activities.render.objects.manifest import RenderOwner
from activities.render.stack import components, objects
from activities.stack.activities import StackActivities
from activities.stack.ownership import MARK
from activities.stack.preflight import make_plan
from activities.stack.readiness import CONTROLLER
from api_types import labels
from api_types.errors import ModelplaneError, NameConflict
from api_types.messages.cluster_work import Connection
from api_types.messages.stack import (
    ApplyStackObjects,
    AwaitNoRoutes,
    CheckStack,
    EnsureRelease,
    InstalledRelease,
    ListLoadBalancers,
    PreflightStack,
    RemoveStackObjects,
    StackOrder,
    StackSeen,
    UninstallRelease,
)
from api_types.resources.serving_stack import ServingStackSpec
from api_types.sections.stacks import StackSettings
from tests.activities.environment.asking import asked_by
from tests.random_cases import cases, generator

CONNECTION = Connection(
    cluster="eu", namespace="modelplane-system", name="eu", key="kubeconfig"
)
PLAN = make_plan("Existing", CONNECTION, StackSettings())
OWNER = RenderOwner("InferenceCluster", "", "eu", "u", generation=0)
HUGE = "x\x1b[31m" * 20_000
HOSTILE: tuple[Any, ...] = (
    HUGE,
    7,
    -1.5,
    None,
    True,
    [],
    [None],
    [HUGE] * 3,
    ["x", 1, {}],
    {},
    {HUGE: HUGE},
    10**400,
    "2026-01-01",
)
RESULT_BYTES_MAX = 200_000
# A sample of some thousands.
ANSWERS = 600
UNREPAIRED_SECONDS = 60
GROUPS = [
    objects.NAMESPACES,
    objects.QUOTA_GROUP,
    objects.CRDS,
    objects.PROXY,
    objects.CLASS,
    objects.GATEWAY,
]
SERVED = (
    kinds.SERVICE,
    kinds.EVENT,
    kinds.SECRET,
    kinds.POD,
    kinds.STATEFUL_SET,
    kinds.GATEWAY,
    kinds.HTTP_ROUTE,
    kinds.INFERENCE_POOL,
    GroupVersionKind("resource.k8s.io/v1", kinds.RESOURCE_SLICE),
    GroupVersionKind("resource.k8s.io/v1", "DeviceClass"),
    GroupVersionKind("resource.k8s.io/v1", "ResourceClaim"),
)


def _applied() -> dict[ObjectId, Json]:
    spec = ServingStackSpec.model_validate(PLAN.spec)
    found = {
        ObjectId.of(item.manifest): copy.deepcopy(item.manifest)
        for each in GROUPS
        for item in objects.group(each, spec, OWNER)
    }
    told = [
        {
            "type": kind,
            "status": "True",
            "reason": "R",
            "message": "M",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
        for kind in ("Accepted", "Established", "NamesAccepted")
    ]
    for item in found.values():
        item["metadata"] |= {
            "uid": "1",
            "generation": 1,
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["example.com/held"],
        }
        item["status"] = {"conditions": copy.deepcopy(told)}
    return found


def _deployment(name: ObjectId) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name.name,
            "namespace": name.namespace,
            "generation": 1,
            "uid": "2",
        },
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"annotations": {labels.RESTARTED_AT: "0"}}},
        },
        "status": {
            "observedGeneration": 1,
            "replicas": 3,
            "updatedReplicas": 2,
            "availableReplicas": 1,
        },
    }


GATEWAY = ObjectId(kinds.GATEWAY, labels.SYSTEM_NAMESPACE, labels.GATEWAY_NAME)
WORKLOAD = ObjectId(kinds.DEPLOYMENT, "lws-system", "lws-controller-manager")
TEMPLATES = {
    **_applied(),
    CONTROLLER: _deployment(CONTROLLER),
    WORKLOAD: _deployment(WORKLOAD),
}
TEMPLATES[GATEWAY]["status"]["addresses"] = [{"type": "IPAddress", "value": ""}]


def _meta(name: str, **more: Any) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "envoy-gateway-system",
            "uid": "3",
            **more,
        }
    }


LISTS: dict[GroupVersionKind, Json] = {
    kinds.SERVICE: {
        **_meta("s", finalizers=["f"], deletionTimestamp="2026-01-01T00:00:00Z"),
        "spec": {"type": "LoadBalancer"},
    },
    kinds.EVENT: {
        **_meta("e", creationTimestamp="2026-01-01T00:00:00Z"),
        "type": "Warning",
        "reason": "R",
        "message": "M",
        "involvedObject": {"name": "s"},
        "series": {"lastObservedTime": "2026-01-01T00:00:00Z"},
    },
    kinds.SECRET: _meta(
        "r",
        labels={"owner": "helm", "name": "mp-lws", "version": "1", "status": "failed"},
    ),
    kinds.POD: {
        **_meta(
            "p",
            labels={"app.kubernetes.io/instance": "mp-lws"},
            ownerReferences=[{"kind": "ReplicaSet", "name": "a-b"}],
        ),
        "status": {"startTime": "2026-01-01T00:00:00Z"},
    },
    kinds.STATEFUL_SET: {
        **_meta(
            "t", generation=1, ownerReferences=[{"kind": "Prometheus", "name": "p"}]
        ),
        "spec": {},
        "status": {},
    },
    kinds.GATEWAY: {
        **_meta("g"),
        "spec": {
            "gatewayClassName": objects.class_name(
                ServingStackSpec.model_validate(PLAN.spec)
            )
        },
    },
    GroupVersionKind("resource.k8s.io/v1", "ResourceClaim"): {
        **_meta("c"),
        "status": {
            "allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com"}]}}
        },
    },
}


def mutations(item: Json) -> Iterator[tuple[str, Json]]:
    """Yield the object with one hostile value at each of its places."""

    def places(part: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            yield (*path, key)
            if isinstance(value, dict | list):
                yield from places(value, (*path, key))

    for path in places(item, ()):
        if path[0] in ("apiVersion", "kind"):
            continue
        for value in HOSTILE:
            changed = copy.deepcopy(item)
            part = changed
            for key in path[:-1]:
                part = part[key]
            part[path[-1]] = value
            yield f"{path}={value!r}"[:120], changed


def _is_taken(item: Json) -> bool:
    """Return True if the client accepts it: with a name, and a namespace if it has one."""
    metadata = item.get("metadata")
    names = (
        [metadata.get("name"), metadata.get("namespace", "")]
        if isinstance(metadata, dict)
        else [None]
    )
    return all(isinstance(name, str) and len(name) <= 1024 for name in names)


@dataclasses.dataclass
class HostileCluster:
    """A cluster whose stack is complete apart from a test's changes.

    It allows everything and keeps nothing.
    """

    items: dict[ObjectId, Json]
    lists: dict[GroupVersionKind, list[Json]]
    calls: int = 0

    @asynccontextmanager
    async def applying(self) -> AsyncIterator[None]:
        yield

    async def resources(
        self, *, refresh: bool = False
    ) -> Mapping[GroupVersionKind, ApiResource]:
        del refresh
        return {
            kind: ApiResource(kind, kind.kind, namespaced=True, verbs=frozenset())
            for kind in (*SERVED, kinds.GATEWAY_CLASS)
        }

    async def get(self, target: ObjectId) -> Json | None:
        return copy.deepcopy(self.items.get(target))

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        self.calls += 1
        found = [
            {
                **item,
                "apiVersion": selection.kind.api_version,
                "kind": selection.kind.kind,
            }
            for item in self.lists.get(selection.kind, [])
        ]
        return ObjectList([keep(item) for item in found], "1")

    async def apply(self, manifest: Json, *, dry_run: bool = False) -> Json:
        del dry_run
        return await self.get(ObjectId.of(manifest)) or manifest

    async def create(self, manifest: Json) -> Json | None:
        return {**manifest, "status": {"allowed": True}}

    async def delete(self, target: ObjectId, **options: Any) -> bool:
        del target, options
        return True


class Pools:
    """The pool of that cluster, and of a helm that knows one release."""

    def __init__(self, cluster: HostileCluster, status: str = "failed") -> None:
        self.written = list[str]()
        self.cluster, self.state = (
            cluster,
            ReleaseState("mp-lws", "lws-system", 1, status, "lws", "v1", "d"),
        )

    @asynccontextmanager
    async def helm(self) -> AsyncIterator[HelmPort]:
        yield cast("HelmPort", self)

    async def ensure(self, release: Release, *, rewrite: bool = False) -> ReleaseState:
        del rewrite
        self.written.append(f"{release.namespace}/{release.name}")
        return self.state

    async def status(self, name: str, namespace: str) -> ReleaseState | None:
        del name, namespace
        return self.state

    async def uninstall(self, name: str, namespace: str) -> None:
        self.written.append(f"{namespace}/{name}")

    async def render(self, release: Release) -> list[Json]:
        del release
        metadata = {
            "name": objects.class_name(ServingStackSpec.model_validate(PLAN.spec))
        }
        return [
            {
                "apiVersion": kinds.GATEWAY_CLASS.api_version,
                "kind": "GatewayClass",
                "metadata": metadata,
            }
        ]

    def activities(self) -> StackActivities:
        return StackActivities(
            cast("ClusterPool", _At(self._api)),
            cast("HelmPool", _At(self.helm)),
            StackSettings(),
        )

    async def _api(self) -> ClusterApi:
        return cast("ClusterApi", self.cluster)


@dataclasses.dataclass
class _At:
    give: Callable[[], Any]

    def at(self, connection: Connection) -> Any:
        del connection
        return self.give()


ASKED = asked_by("inferencecluster/eu")
BASE: dict[str, Any] = {"connection": CONNECTION, "cluster_uid": "u"}
INSTALLED = [
    InstalledRelease(
        component=key,
        name=PLAN.releases[key].name,
        namespace=PLAN.releases[key].namespace,
        revision=1,
    )
    for key in (
        components.DRA_DRIVER.key,
        components.ENVOY_GATEWAY.key,
        components.AI_GATEWAY.key,
        components.PROMETHEUS.key,
    )
]
LWS = InstalledRelease(
    component="lws",
    name="mp-lws",
    namespace="envoy-gateway-system",
    revision=1,
    workloads=[f"Deployment/lws-system/{WORKLOAD.name}"],
)
CHECK = CheckStack(
    source="Existing",
    spec=PLAN.spec,
    plan=PLAN.digest,
    releases=[*INSTALLED, LWS],
    groups=GROUPS,
    max_seconds=0,
    poll_seconds=0,
    **BASE,
)
UNINSTALL = UninstallRelease(
    name="mp-lws",
    namespace="lws-system",
    workloads=LWS.workloads,
    claim_drivers=["gpu.nvidia.com"],
    wait_seconds=0,
    **BASE,
)


def orders(activities: StackActivities) -> list[tuple[str, Any, Any]]:
    """Return every activity that reads from the cluster."""
    return [
        (
            "preflight",
            activities.preflight_stack,
            PreflightStack(source="Existing", **BASE),
        ),
        *(
            (
                "apply",
                activities.apply_stack_objects,
                ApplyStackObjects(spec=PLAN.spec, group=each, **BASE),
            )
            for each in (objects.NAMESPACES, objects.CLASS)
        ),
        ("restart", activities.restart_ai_gateway, StackOrder(**BASE)),
        *(
            (
                "remove",
                activities.remove_stack_objects,
                RemoveStackObjects(spec=PLAN.spec, group=each, wait_seconds=0, **BASE),
            )
            for each in GROUPS
        ),
        ("uninstall", activities.helm_uninstall, UNINSTALL),
        ("balancers", activities.list_load_balancers, ListLoadBalancers(**BASE)),
    ]


def a_cluster() -> HostileCluster:
    return HostileCluster(
        copy.deepcopy(TEMPLATES),
        {kind: [copy.deepcopy(item)] for kind, item in LISTS.items()},
    )


def _hostile_clusters() -> Iterator[tuple[str, Callable[[], HostileCluster]]]:
    for target, item in {
        target.kind: (target, item) for target, item in TEMPLATES.items()
    }.values():
        # Specs of our own objects are not read, except in definitions.
        read = {
            key: part
            for key, part in item.items()
            if target.kind in (kinds.CRD, kinds.DEPLOYMENT) or key != "spec"
        }
        if target.kind == kinds.CRD:
            read["spec"] = {
                **item["spec"],
                "versions": [
                    {key: each[key] for key in ("name", "storage")}
                    for each in item["spec"]["versions"]
                ],
            }
        for story, changed in mutations(read):
            if _is_taken(changed):
                yield f"{target}: {story}", partial(_with_item, target, changed)
    for kind, item in LISTS.items():
        for story, changed in mutations(item):
            if _is_taken(changed):
                yield f"{kind}: {story}", partial(_with_list, kind, changed)


def _with_item(target: ObjectId, item: Json) -> HostileCluster:
    cluster = a_cluster()
    cluster.items[target] = item
    return cluster


def _with_list(kind: GroupVersionKind, item: Json) -> HostileCluster:
    cluster = a_cluster()
    cluster.lists[kind] = [item]
    return cluster


@pytest.mark.slow
@pytest.mark.random
async def test_any_answer_of_a_cluster_leads_to_a_bounded_result_or_a_project_error() -> (
    None
):
    """The seed selects a sample of all answers. A campaign tries all of them."""
    unexpected, answers = list[str](), list(_hostile_clusters())
    for story, make in generator().sample(answers, min(len(answers), cases(ANSWERS))):
        for name, activity, order in orders(Pools(make()).activities()):
            try:
                size = len(to_json(await ASKED.run(activity, order)))
            except ModelplaneError as error:
                size = len(error.message)
            except Exception as error:  # noqa: BLE001 - the test is about unexpected errors
                unexpected.append(
                    f"{name}: {story}: {type(error).__name__}: {error}"[:400]
                )
                continue
            if size > RESULT_BYTES_MAX:
                unexpected.append(f"{name}: {story}: {size} bytes")
    assert not unexpected, f"{len(unexpected)}: {json.dumps(unexpected[:20], indent=1)}"


async def _look(cluster: HostileCluster) -> StackSeen:
    seen: StackSeen = await ASKED.run(
        Pools(cluster).activities().stack_readiness, CHECK
    )
    return seen


async def test_long_texts_are_shortened_and_do_not_end_the_check() -> None:
    cluster = a_cluster()
    cluster.items[GATEWAY]["status"]["addresses"] = [{"value": HUGE}]
    cluster.items[GATEWAY]["status"]["conditions"] = [
        {"type": "Accepted", "status": HUGE, "reason": HUGE, "message": HUGE}
    ]
    cluster.lists[kinds.SECRET] = [
        _meta(
            "r",
            labels={
                "owner": "helm",
                "name": "mp-lws",
                "version": "9" * 5000,
                "status": HUGE,
            },
        )
    ]
    cluster.lists[kinds.EVENT][0]["message"] = HUGE
    name = "n" * 1000
    cluster.lists[kinds.STATEFUL_SET] = [
        {
            "metadata": {
                "name": name,
                "namespace": name,
                "generation": 1,
                "ownerReferences": [{"kind": "Prometheus"}],
            }
        }
    ]
    seen = await _look(cluster)
    assert seen.address == ""
    assert any(lag.object.startswith(f"StatefulSet {name}/") for lag in seen.lags)
    assert any(lag.why.startswith("its status is x") for lag in seen.lags)
    assert len(to_json(seen)) < RESULT_BYTES_MAX


async def test_a_malformed_object_is_checked_again() -> None:
    cluster = a_cluster()
    selector, cluster.items[CONTROLLER]["spec"]["selector"] = (
        cluster.items[CONTROLLER]["spec"]["selector"],
        "none",
    )
    environment, told = asked_by("inferencecluster/eu"), list[str]()

    def repaired(*details: Any) -> None:
        told.append(str(details))
        if "malformed" in told[-1]:
            cluster.items[CONTROLLER]["spec"]["selector"] = selector

    environment.on_heartbeat = repaired
    # Without the text the selector is never repaired, and the activity waits for days.
    async with asyncio.timeout(UNREPAIRED_SECONDS):
        seen = await environment.run(Pools(cluster).activities().stack_readiness, CHECK)
    assert seen.lags
    assert any("malformed" in each for each in told)


async def test_events_are_read_for_only_a_few_of_thousands_of_services() -> None:
    cluster = a_cluster()
    cluster.lists[kinds.SERVICE] = [
        {**LISTS[kinds.SERVICE], **_meta(f"s{number}")} for number in range(3000)
    ]
    await _look(cluster)
    assert cluster.calls < 50
    cluster.calls = 0
    del cluster.items[GATEWAY]
    gone = RemoveStackObjects(
        spec=PLAN.spec, group=objects.GATEWAY, wait_seconds=0, **BASE
    )
    result = await ASKED.run(Pools(cluster).activities().remove_stack_objects, gone)
    assert len(result.remaining) == 20
    assert cluster.calls < 50


async def test_foreign_names_are_shortened_in_conflicts() -> None:
    cluster = a_cluster()
    item = cluster.items[
        ObjectId(
            kinds.GATEWAY_CLASS,
            "",
            objects.class_name(ServingStackSpec.model_validate(PLAN.spec)),
        )
    ]
    item["metadata"]["annotations"] = {
        "meta.helm.sh/release-name": HUGE,
        "meta.helm.sh/release-namespace": HUGE,
    }
    item["spec"]["controllerName"] = HUGE
    with pytest.raises(NameConflict) as caught:
        await ASKED.run(
            Pools(cluster).activities().preflight_stack,
            PreflightStack(source="Existing", **BASE),
        )
    assert len(caught.value.message) < 8_000
    cluster.items[MARK]["metadata"]["annotations"][labels.OWNER_UID] = HUGE
    with pytest.raises(NameConflict) as caught:
        await ASKED.run(
            Pools(cluster).activities().restart_ai_gateway, StackOrder(**BASE)
        )
    assert len(caught.value.message) < 2_000


async def test_load_balancers_of_others_with_the_longest_names_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = a_cluster()
    ours, listed = cluster.lists[kinds.SERVICE], cluster.list
    others = [{**ours[0], "metadata": {"name": "n" * 1000, "namespace": "m" * 1000}}]

    async def ours_by_their_label(
        selection: Selection, keep: Keep = whole
    ) -> ObjectList:
        cluster.lists[kinds.SERVICE] = ours if selection.labels else others
        return await listed(selection, keep)

    monkeypatch.setattr(cluster, "list", ours_by_their_label)
    found = await ASKED.run(
        Pools(cluster).activities().list_load_balancers, ListLoadBalancers(**BASE)
    )
    assert [len(each) for each in found.services] == [1024]


async def test_releases_of_a_transferred_stack_are_neither_written_nor_removed() -> (
    None
):
    cluster = a_cluster()
    pools = Pools(cluster)
    activities = pools.activities()
    ensure = EnsureRelease(
        release=PLAN.releases[components.LEADER_WORKER_SET.key], **BASE
    )
    uninstall = UNINSTALL.model_copy(update={"cluster_uid": "u", "claim_drivers": []})
    routes = AwaitNoRoutes(wait_seconds=0, **BASE)
    cluster.lists[kinds.HTTP_ROUTE] = [_meta("r")]
    # In the middle of an installation, as the message of the conflict advises.
    cluster.items[MARK]["metadata"]["annotations"][labels.OWNER_UID] = "another"
    with pytest.raises(
        NameConflict, match="the serving stack of the cluster belongs to"
    ):
        await ASKED.run(activities.helm_ensure, ensure)
    result = await ASKED.run(activities.helm_uninstall, uninstall)
    assert result.remaining == []
    assert "belongs to InferenceCluster eu (uid another)" in result.skipped[0]
    # Routes of another owner's stack are not waited for.
    result = await ASKED.run(activities.await_no_routes, routes)
    assert (len(result.remaining), len(result.skipped)) == (0, 1)
    assert pools.written == []
    # Without a mark, which a user deleted, the stack is still ours.
    del cluster.items[MARK]
    await ASKED.run(activities.helm_ensure, ensure)
    await ASKED.run(activities.helm_uninstall, uninstall)
    assert pools.written == ["lws-system/mp-lws"] * 2
    assert len((await ASKED.run(activities.await_no_routes, routes)).remaining) == 1


async def test_thousands_of_foreign_releases_are_not_all_read_or_named() -> None:
    cluster = a_cluster()
    cluster.items = {MARK: cluster.items[MARK]}
    marks = {"owner": "helm", "version": "1", "status": "deployed"}
    cluster.lists[kinds.SECRET] = [
        {
            "metadata": {
                "name": "r",
                "namespace": f"n{number}",
                "labels": {**marks, "name": name},
            }
        }
        for number in range(3000)
        for name in ("mp-lws", "mp-unknown", HUGE)
    ]
    # The helm of these tests cannot list releases.
    with pytest.raises(NameConflict, match="and 2995 more: remove it") as caught:
        await ASKED.run(
            Pools(cluster).activities().preflight_stack,
            PreflightStack(source="Existing", **BASE),
        )
    assert (
        "release n0/mp-lws has the name of a release of the stack"
        in caught.value.message
    )
    assert len(caught.value.message) < 1000
