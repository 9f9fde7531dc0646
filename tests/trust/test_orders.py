"""An activity acts on an object only for the workflow of that object.

No order reaches credentials of the platform.

The tests read the activities that a worker serves for clusters, so they also cover
activities that are added later.
"""

import asyncio
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from activities.clients.kubernetes.pool import KubernetesPool
from activities.clients.secrets.directory import SecretDirectory
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.propagation import SECRET, Reference, Source, plan
from activities.secrets.copy_data import read_copy_data
from activities.secrets.credentials import read_credential
from activities.secrets.store import StoredSecret
from activities.workloads.copies import needed_copies
from api_types import names
from api_types.errors import PermissionDenied
from api_types.messages.cluster_work import ApplyReplica, ClusterFacts, Connection
from api_types.pins.charts import STACK_NAMESPACES
from api_types.resources.kinds import SERVED
from api_types.sections.clusters import KubeconfigSettings, SecretSettings
from api_types.sections.programs import WorkerSettings
from api_types.settings import Settings
from tests.activities.environment.asking import asked_by
from tests.activities.render.builders import a_member, an_engine
from worker import build_activities, work_on_clusters

SETTINGS = Settings(secrets=SecretSettings(directory=Path("/nowhere")))
SERVED_ACTIVITIES = [
    each
    for work in work_on_clusters(build_activities(SETTINGS), WorkerSettings()).values()
    for each in work.activities
]
# Seconds. An activity that accepts the order may wait for ever.
WITHIN = 10
# This activity takes no order and does nothing.
WITHOUT_ORDER = {"await_worker"}
OTHERS = [
    "",
    "load",
    *(
        names.workflow_id(info.kind, "other" if info.namespaced else "", "other")
        for info in SERVED
    ),
    # The kind and namespace match only in part of the ID.
    "modelcache/ml/other/x",
    "modelcache//x",
    "modelreplica/ml-x/x",
    "modelreplica/other/ml/x",
    "ModelReplica/ml/x",
    "inferencecluster/ml/x",
]
RESERVED = sorted(
    {"modelplane-system", "kube-system", "kube-public", "kube-anything"}
    | STACK_NAMESPACES
)
CONTENT = {"kubeconfig": b"credential-of-a-cluster"}


def an_order(model: type[BaseModel]) -> BaseModel:
    """Return an order for object x of namespace ml, with all required fields."""
    return model.model_validate(
        {
            name: _value(name, field.annotation)
            for name, field in model.model_fields.items()
            if field.is_required()
        }
    )


def _value(name: str, kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return an_order(kind)
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)[0]
    by_type = {str: "ml" if name == "namespace" else "x", int: 1, bool: False}
    return by_type[kind] if kind in by_type else (typing.get_origin(kind) or kind)()


def model_of(activity: Callable[..., Any]) -> type[BaseModel] | None:
    hints = typing.get_type_hints(activity)
    parameters = [
        name for name in inspect.signature(activity).parameters if name != "self"
    ]
    return hints[parameters[0]] if parameters else None


def test_every_activity_on_clusters_except_await_worker_takes_an_order() -> None:
    assert {
        each.__name__ for each in SERVED_ACTIVITIES if model_of(each) is None
    } == WITHOUT_ORDER


@pytest.mark.parametrize(
    "activity",
    [each for each in SERVED_ACTIVITIES if model_of(each)],
    ids=lambda each: each.__name__,
)
async def test_an_order_of_another_workflow_is_refused(
    activity: Callable[..., Any],
) -> None:
    model = model_of(activity)
    assert model
    for other in OTHERS:
        with pytest.raises(
            PermissionDenied, match=r"may not (call|act|delete)"
        ) as refused:
            await asyncio.wait_for(
                asked_by(other).run(activity, an_order(model)), WITHIN
            )
        assert refused.value.non_retryable


async def test_an_order_to_delete_the_objects_of_another_replica_is_refused() -> None:
    (teardown,) = (
        each for each in SERVED_ACTIVITIES if each.__name__ == "teardown_replica_step"
    )
    model = model_of(teardown)
    assert model
    order = an_order(model).model_copy(
        update={"workload_name": names.workload_name("other", "x")}
    )
    with pytest.raises(PermissionDenied, match="ModelReplica ml/x may not delete"):
        await asked_by("modelreplica/ml/x").run(teardown, order)
    # The activity searches this namespace if the order names none.
    elsewhere = order.model_copy(
        update={
            "workload_name": names.workload_name("ml", "x"),
            "namespace": "other",
            "workload_namespace": "",
        }
    )
    with pytest.raises(
        PermissionDenied, match="ModelReplica ml/x may not act for other"
    ):
        await asked_by("modelreplica/ml/x").run(teardown, elsewhere)


# The secret store


@pytest.fixture
async def store(tmp_path: Path) -> SecretDirectory:
    """Return a store with a kubeconfig in each platform namespace and in `ml`."""
    store = SecretDirectory(tmp_path)
    for namespace in [*RESERVED, "ml"]:
        await store.put(StoredSecret(namespace, "x", CONTENT))
    return store


@pytest.mark.parametrize("namespace", RESERVED)
async def test_caches_and_replicas_cannot_read_platform_credentials(
    store: SecretDirectory, namespace: str
) -> None:
    with pytest.raises(PermissionDenied, match="belongs to the platform"):
        await read_credential(store, namespace, "x", "kubeconfig")
    planned = plan(
        namespace,
        [Reference(SECRET, "x")],
        {"Secret/x": Source()},
        RenderSettings(secrets_propagation="all"),
    )
    with pytest.raises(PermissionDenied, match="belongs to the platform"):
        await read_copy_data(store, planned.copies[0])
    env = [
        {"name": "X", "valueFrom": {"secretKeyRef": {"name": "x", "key": "kubeconfig"}}}
    ]
    spec = {"clusterName": "x", "engines": [an_engine("main", a_member(env=env))]}
    order = ApplyReplica.model_validate(
        {**dict(an_order(ApplyReplica)), "namespace": namespace, "spec": spec}
    )
    with pytest.raises(PermissionDenied, match="belongs to the platform"):
        await needed_copies(store, order, RenderSettings(secrets_propagation="all"))


async def test_only_a_setting_copies_a_secret_of_the_platform(
    store: SecretDirectory,
) -> None:
    await store.put(
        StoredSecret(
            "modelplane-system",
            "robot",
            {".dockerconfigjson": b"{}"},
            type="kubernetes.io/dockerconfigjson",
        )
    )
    spec = {
        "clusterName": "x",
        "engines": [an_engine("main", a_member(pull_secrets=["robot"]))],
    }
    order = ApplyReplica.model_validate(
        {**dict(an_order(ApplyReplica)), "namespace": "ml", "spec": spec}
    )
    by_spec = await needed_copies(
        store, order, RenderSettings(secrets_propagation="labelled")
    )
    by_setting = await needed_copies(
        store, order, RenderSettings(pull_secrets=("robot",), secrets_propagation="off")
    )
    assert (
        [*by_spec.copies],
        [copy.platform for copy in by_setting.copies],
        by_setting.rewrites,
        by_setting.hash,
    ) == ([], [True], {}, "")
    assert await read_copy_data(store, by_setting.copies[0]) == {
        "data": {".dockerconfigjson": "e30="}
    }


async def test_a_tenant_can_read_its_own_credential(store: SecretDirectory) -> None:
    assert (
        await read_credential(store, "ml", "x", "kubeconfig")
    ).value.encode() == CONTENT["kubeconfig"]


@pytest.mark.parametrize(
    "namespace", ["ml", "default", "kube-system", *sorted(STACK_NAMESPACES)]
)
async def test_a_kubeconfig_is_read_from_the_platforms_namespace_only(
    store: SecretDirectory, namespace: str
) -> None:
    pool = KubernetesPool(store, KubeconfigSettings())
    with pytest.raises(
        PermissionDenied,
        match=(
            "read from namespace modelplane-system, "
            f"not from {namespace}/x; put the Secret there"
        ),
    ):
        await pool.at(Connection(cluster="eu", namespace=namespace, name="x"))


def test_facts_of_a_cluster_name_no_credential() -> None:
    # Every replica on the cluster keeps the facts that the cluster reports.
    assert not {"secret", "token", "connection"} & {
        part for name in ClusterFacts.model_fields for part in name.split("_")
    }
