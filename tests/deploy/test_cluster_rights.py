"""The roles for inference clusters match the worker's requests and its connection
check.

On a real API server, a ServiceAccount with only these roles can run all activities.
"""

import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from activities.cluster_objects import kinds
from activities.cluster_objects.access_review import ResourceRight
from activities.cluster_objects.cluster_api import (
    ApiResource,
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.clusters.activities import ClusterActivities
from activities.clusters.capacity.adapters import ADAPTERS
from activities.clusters.permissions import (
    ROLES_FILE,
    Usage,
    check_permissions,
    granted_rights,
    needed_rights,
    rights_of,
)
from activities.clusters.probe import RIGHTS
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.queues import QUEUES
from activities.render.objects.teardown import CACHE_STEPS, STEPS, SWEPT_KINDS
from activities.secrets.store import StoredSecret
from activities.workloads.activities import WorkloadActivities
from api_types import labels
from api_types.errors import PermissionDenied
from api_types.messages.cluster_work import Connect
from api_types.pins import apiversions
from testbed.running import Running
from tests.activities.caches import staging
from tests.activities.environment import operator
from tests.activities.environment.cluster_under_test import (
    ClusterUnderTest,
    cluster_from,
    eventually,
)
from tests.activities.render.builders import a_gang, a_member, an_engine
from tests.environment.idle_clusters import IdleCluster

FOLDER = Path(__file__).parents[2]
DOCUMENTS: list[Json] = list(yaml.safe_load_all((FOLDER / ROLES_FILE).read_text()))
ROLES: dict[str, list[Json]] = {
    item["metadata"]["name"]: item["rules"]
    for item in DOCUMENTS
    if item["kind"] == "ClusterRole"
}
MAIN = "modelplane-inference-cluster"
ONE = [{"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}]
# An informer of the API server passes a changed role to its authorizer.
SETTLING_SECONDS = 120.0
USAGES = {
    MAIN: [
        Usage(adapter, scheduler)
        for adapter in ("none", *ADAPTERS)
        for scheduler in ("none", *QUEUES)
    ],
    f"{MAIN}-metrics-auth": [Usage(metrics_auth=True)],
    f"{MAIN}-force-delete": [Usage(force_delete=True)],
}


def everything() -> dict[GroupVersionKind, ApiResource]:
    """All kinds that the project uses, as served by a cluster with every add-on."""
    pairs = {
        *SWEPT_KINDS,
        *(
            pair
            for step in (*STEPS, *CACHE_STEPS)
            for pair in (*step.kinds, *step.wait_kinds)
        ),
    }
    pairs |= {
        (version, kind)
        for adapter in ADAPTERS.values()
        for version, kind, _ in adapter.kinds
    }
    pairs |= {
        (f"{group}/", kind)
        for group, kind in QUEUES.values()
        if group == apiversions.KUEUE_GROUP
    }
    fixed = (
        kinds.POD,
        kinds.NODE,
        kinds.NAMESPACE,
        kinds.STORAGE_CLASS,
        kinds.ENDPOINT_SLICE,
        kinds.GATEWAY,
    )
    found = [
        *fixed,
        *(
            GroupVersionKind(
                f"{version}v1beta1" if version.endswith("/") else version, kind
            )
            for version, kind in sorted(pairs)
        ),
    ]
    return {
        kind: ApiResource(kind, plural(kind.kind), namespaced=True, verbs=frozenset())
        for kind in found
    }


def plural(kind: str) -> str:
    return f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"


def used(usages: list[Usage]) -> set[ResourceRight]:
    return {
        right
        for usage in usages
        for right in (
            *needed_rights(everything(), usage),
            *granted_rights(everything(), usage),
        )
    }


@pytest.mark.parametrize("role", USAGES)
def test_the_roles_have_exactly_the_checked_rights(role: str) -> None:
    """Rights for optional settings are in separate roles."""
    written = [right for rule in ROLES[role] for right in rights_of(rule)]
    wanted = used(USAGES[role])
    wanted = wanted | set(RIGHTS) if role == MAIN else wanted - used(USAGES[MAIN])
    assert len(written) == len(set(written)), "each once"
    assert (sorted(wanted - set(written)), sorted(set(written) - wanted)) == ([], []), (
        "to add, and to delete"
    )


def test_every_role_of_the_file_is_checked() -> None:
    assert set(ROLES) == set(USAGES)


class Denying(IdleCluster):
    """A cluster that grants all rights but some."""

    def __init__(self, *denied: ResourceRight) -> None:
        self.denied = denied

    async def create(self, manifest: Json) -> Json | None:
        spec = manifest["spec"]
        if "nonResourceAttributes" in spec:
            asked = ResourceRight(
                spec["nonResourceAttributes"]["verb"],
                spec["nonResourceAttributes"]["path"],
            )
        else:
            attributes = spec["resourceAttributes"]
            asked = ResourceRight(
                attributes["verb"], attributes["resource"], attributes["group"]
            )
        return {"status": {"allowed": asked.verb != "*" and asked not in self.denied}}


ALL = Usage("kueue", "kueue", metrics_auth=True, force_delete=True)
ESCALATION = [
    ResourceRight(verb, each, "rbac.authorization.k8s.io")
    for each in ("roles", "clusterroles")
    for verb in ("escalate", "bind")
]


async def denial(cluster: ClusterApi, usage: Usage = ALL) -> str:
    try:
        await check_permissions(cluster, "eu", everything(), usage)
    except PermissionDenied as error:
        return error.message
    return ""


@pytest.mark.slow
async def test_each_missing_right_is_named() -> None:
    for right in needed_rights(everything(), ALL):
        message = await denial(Denying(right))
        assert (
            f"in all namespaces: {right.verb} {right.target}; bind the user to the "
            f"ClusterRole of {ROLES_FILE}"
        ) in message
    assert await denial(Denying()) == ""


async def test_the_rights_granted_to_pickers_are_needed_unless_the_user_may_escalate() -> (
    None
):
    needed = set(needed_rights(everything(), ALL))
    granted = [
        right for right in granted_rights(everything(), ALL) if right not in needed
    ]
    assert {
        "/metrics",
        "inferenceobjectives.llm-d.ai",
    } <= {right.target for right in granted}
    for right in granted:
        assert await denial(Denying(right)) == ""
        for escalation in ESCALATION:
            assert f"{right.verb} {right.target}" in await denial(
                Denying(right, escalation)
            )


async def test_a_long_list_is_truncated() -> None:
    message = await denial(Denying(*needed_rights(everything(), ALL)))
    assert (
        "get,list,watch,create,patch,delete httproutes.gateway.networking.k8s.io; "
        in message
    )
    assert "more resources; bind the user" in message
    assert len(message) < 2000


# A real API server


@pytest_asyncio.fixture
async def limited(
    testbed: Running, tmp_path: Path
) -> AsyncIterator[tuple[ClusterUnderTest, ClusterUnderTest]]:
    """A cluster with the file applied, seen by its administrator and by the
    ServiceAccount.
    """
    kubeconfig = testbed.clusters["prod-eu"].kubeconfig.read_text()
    admin = await cluster_from("prod-eu", kubeconfig, tmp_path / "admin")
    api = await admin.api()
    made = [ObjectId.of(await api.apply(item)) for item in DOCUMENTS]
    token = await operator.token_of(admin, labels.SYSTEM_NAMESPACE, "modelplane")
    user = await cluster_from(
        "prod-eu", operator.with_token(kubeconfig, token), tmp_path / "user"
    )
    await eventually(lambda: _connects(user), SETTLING_SECONDS)
    user.facts = await user.connect()
    yield admin, user
    admin.namespaces |= user.namespaces
    await admin.clear()
    for target in reversed(made):
        await api.delete(target, propagation="Background")
    for each in (admin, user):
        await each.pool.close()


async def _connects(cluster: ClusterUnderTest) -> bool:
    try:
        await cluster.connect()
    except PermissionDenied:
        return False
    return True


@pytest.mark.testbed
async def test_the_service_account_of_the_file_has_all_rights_of_the_worker(
    limited: tuple[ClusterUnderTest, ClusterUnderTest],
) -> None:
    admin, user = limited
    engine = an_engine("main", a_member(requests=ONE, pull_secrets=["registry"]))
    order = user.order(
        [
            engine,
            a_gang(
                "wide", leader={"requests": ONE}, worker={"nodes": 1, "requests": ONE}
            ),
        ]
    )
    labelled = {labels.PROPAGATE: "true"}
    await user.store.put(
        StoredSecret(order.namespace, "registry", {"token": b"1"}, labels=labelled)
    )
    async with user.watching() as client:
        first = await user.apply(order)
        assert [entry for entry in first.inventory if "/Secret/" in entry.id], (
            "a Secret is copied"
        )
        # A second replica with the same copy and a changed value: the copy is replaced.
        second = user.order([engine], namespace=order.namespace)
        applied = await user.apply(second)
        await user.store.put(
            StoredSecret(order.namespace, "registry", {"token": b"2"}, labels=labelled)
        )
        engine["copies"] = 2
        again = await user.apply(
            order.model_copy(update={"inventory": first.inventory, "generation": 2})
        )
        assert (
            await user.prune(
                order.model_copy(update={"inventory": again.inventory, "generation": 2})
            )
            == []
        )
        observed = await eventually(lambda: client.cluster(user.workflow_id))
        assert (observed.reachable, observed.error) == (True, "")
        assert await eventually(
            lambda: client.replica(f"modelreplica/{order.namespace}/{order.name}")
        )
    for replica, found in ((order, again), (second, applied)):
        assert await user.tear_down(replica, found) == []

    async def only_pickers_left() -> bool:
        left = map(ObjectId.parse, await admin.everything_labelled(applied))
        return {each.name.rpartition("-epp-")[0] for each in left} <= {
            again.workload_name,
            applied.workload_name,
        }

    await eventually(only_pickers_left)
    # Without the right to delete pods, the pickers run until their grace period ends.
    api = await admin.api()
    for pod in (await api.list(Selection(kinds.POD, applied.workload_namespace))).items:
        assert "-epp-" in pod["metadata"]["name"]
        await api.delete(ObjectId.of(pod), grace_seconds=0)
    cache = staging.an_order(user, hub_key="hub")
    await user.store.put(StoredSecret(cache.namespace, "hub", {"HF_TOKEN": b"1"}))
    staged = await staging.apply(user, cache)
    assert staged.job_uid
    assert await staging.remove(user, cache, staged) == []
    # The rights include the reads of the plain capacity adapter.
    await user.environment().run(
        ClusterActivities(user.pool).connect_cluster,
        Connect(connection=user.connection, capacity_adapter="kube"),
    )


@pytest.mark.testbed
async def test_optional_features_are_rejected_until_their_role_is_bound(
    limited: tuple[ClusterUnderTest, ClusterUnderTest],
) -> None:
    admin, user = limited

    async def connect() -> bool:
        activities = ClusterActivities(
            user.pool,
            usage=Usage(metrics_auth=True, force_delete=True),
        )
        await user.environment().run(
            activities.connect_cluster, Connect(connection=user.connection)
        )
        return True

    with pytest.raises(PermissionDenied) as caught:
        await connect()
    for missing in (
        "get,create,patch,delete clusterroles.rbac.authorization.k8s.io",
        "delete pods",
        "create subjectaccessreviews.authorization.k8s.io",
        "get /metrics",
    ):
        assert missing in caught.value.message
    suffix = secrets.token_hex(4)
    api = await admin.api()
    made = []
    for role in set(ROLES) - {MAIN}:
        binding = next(
            item for item in DOCUMENTS if item["kind"] == "ClusterRoleBinding"
        )
        bound = {
            **binding,
            "metadata": {"name": f"{role}-{suffix}"},
            "roleRef": {**binding["roleRef"], "name": role},
        }
        made.append(ObjectId.of(await api.apply(bound)))

    async def allowed() -> bool:
        try:
            return await connect()
        except PermissionDenied:
            return False

    try:
        await eventually(allowed, SETTLING_SECONDS)
        # The picker's own ClusterRole can be granted as well.
        settings = RenderSettings(epp_metrics_auth=True, epp_replicas=2)
        order = user.order([an_engine("main", a_member(requests=ONE))])
        work = replace(
            WorkloadActivities(user.pool, user.store, settings), force_after=None
        )
        applied = await user.environment(order).run(work.apply_replica, order)
        assert [entry for entry in applied.inventory if "/ClusterRole/" in entry.id]
        assert await user.tear_down(order, applied) == []
    finally:
        for target in made:
            await api.delete(target, propagation="Background")


@pytest.mark.testbed
async def test_a_missing_create_is_found_although_apply_is_a_patch(
    limited: tuple[ClusterUnderTest, ClusterUnderTest],
) -> None:
    admin, user = limited
    document: dict[str, Any] = next(
        item
        for item in DOCUMENTS
        if item["kind"] == "ClusterRole" and item["metadata"]["name"] == MAIN
    )
    rules = [
        {
            **rule,
            "verbs": [
                verb
                for verb in rule["verbs"]
                if verb != "create" or "deployments" not in rule["resources"]
            ],
        }
        for rule in document["rules"]
    ]
    await (await admin.api()).apply({**document, "rules": rules})

    async def refused() -> str:
        try:
            await user.connect()
        except PermissionDenied as error:
            return error.message
        return ""

    message = await eventually(refused, SETTLING_SECONDS)
    assert "create deployments.apps" in message
    # The API server also rejects the apply.
    with pytest.raises(PermissionDenied, match="cannot create resource"):
        await user.apply(user.order([an_engine("main", a_member(requests=ONE))]))
