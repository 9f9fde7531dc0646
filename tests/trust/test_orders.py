"""What is ordered for one object is done only for the workflow of that object, and no order reaches credentials of the platform.

The activities are those that a worker serves for clusters, so one that is added later is among them.
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
from api_types.settings import KubeconfigSettings, SecretSettings, Settings, WorkerSettings
from tests.activities.environment.asking import asked_by
from tests.activities.render.builders import a_member, an_engine
from worker import build_activities, work_on_clusters

SETTINGS = Settings(secrets=SecretSettings(directory=Path("/nowhere")))
SERVED_ACTIVITIES = [each for work in work_on_clusters(build_activities(SETTINGS), WorkerSettings()).values() for each in work.activities]
# One that is not refused may wait for ever.
WITHIN = 10
# It has no order, and does nothing.
WITHOUT_ORDER = {"await_worker"}
OTHERS = [
    "",
    "load",
    *(names.workflow_id(info.kind, "other" if info.namespaced else "", "other") for info in SERVED),
    # Of the right kind and namespace in some part of it only.
    "modelcache/ml/other/x",
    "modelcache//x",
    "modelreplica/ml-x/x",
    "modelreplica/other/ml/x",
    "ModelReplica/ml/x",
    "inferencecluster/ml/x",
]
RESERVED = sorted({"modelplane-system", "kube-system", "kube-public", "kube-anything"} | STACK_NAMESPACES)
CONTENT = {"kubeconfig": b"credential-of-a-cluster"}


def an_order(model: type[BaseModel]) -> BaseModel:
    """Give an order with all that it must have, for x of namespace ml."""
    return model.model_validate({name: _value(name, field.annotation) for name, field in model.model_fields.items() if field.is_required()})


def _value(name: str, kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return an_order(kind)
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)[0]
    by_type = {str: "ml" if name == "namespace" else "x", int: 1, bool: False}
    return by_type[kind] if kind in by_type else (typing.get_origin(kind) or kind)()


def model_of(activity: Callable[..., Any]) -> type[BaseModel] | None:
    hints = typing.get_type_hints(activity)
    parameters = [name for name in inspect.signature(activity).parameters if name != "self"]
    return hints[parameters[0]] if parameters else None


def test_every_activity_on_clusters_but_one_that_does_nothing_has_an_order() -> None:
    assert {each.__name__ for each in SERVED_ACTIVITIES if model_of(each) is None} == WITHOUT_ORDER


@pytest.mark.parametrize("activity", [each for each in SERVED_ACTIVITIES if model_of(each)], ids=lambda each: each.__name__)
async def test_an_order_of_another_workflow_is_refused(activity: Callable[..., Any]) -> None:
    model = model_of(activity)
    assert model
    for other in OTHERS:
        with pytest.raises(PermissionDenied, match=r"may not (order|delete)") as refused:
            await asyncio.wait_for(asked_by(other).run(activity, an_order(model)), WITHIN)
        assert refused.value.non_retryable


async def test_an_order_to_delete_what_is_named_after_another_replica_is_refused() -> None:
    (teardown,) = (each for each in SERVED_ACTIVITIES if each.__name__ == "teardown_replica_step")
    model = model_of(teardown)
    assert model
    order = an_order(model).model_copy(update={"workload_name": names.workload_name("other", "x")})
    with pytest.raises(PermissionDenied, match="ModelReplica ml/x may not delete"):
        await asked_by("modelreplica/ml/x").run(teardown, order)
    # The namespace is where the objects are looked for, if the order does not say.
    elsewhere = order.model_copy(update={"workload_name": names.workload_name("ml", "x"), "namespace": "other", "workload_namespace": ""})
    with pytest.raises(PermissionDenied, match="ModelReplica ml/x may not order what is of other"):
        await asked_by("modelreplica/ml/x").run(teardown, elsewhere)


# --- the store --------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def store(tmp_path: Path) -> SecretDirectory:
    """A store with a kubeconfig in each of the platform's namespaces, and in one of a tenant."""
    store = SecretDirectory(tmp_path)
    for namespace in [*RESERVED, "ml"]:
        await store.put(StoredSecret(namespace, "x", CONTENT))
    return store


@pytest.mark.parametrize("namespace", RESERVED)
async def test_a_credential_of_the_platform_is_none_of_a_cache_or_a_replica(store: SecretDirectory, namespace: str) -> None:
    with pytest.raises(PermissionDenied, match="belongs to the platform"):
        await read_credential(store, namespace, "x", "kubeconfig")
    planned = plan(namespace, [Reference(SECRET, "x")], {"Secret/x": Source()}, RenderSettings(secrets_propagation="all"))
    with pytest.raises(PermissionDenied, match="belongs to the platform"):
        await read_copy_data(store, planned.copies[0])
    env = [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "x", "key": "kubeconfig"}}}]
    spec = {"clusterName": "x", "engines": [an_engine("main", a_member(env=env))]}
    order = ApplyReplica.model_validate({**dict(an_order(ApplyReplica)), "namespace": namespace, "spec": spec})
    with pytest.raises(PermissionDenied, match="belongs to the platform"):
        await needed_copies(store, order, RenderSettings(secrets_propagation="all"))


async def test_a_setting_makes_one_secret_of_the_platform_a_copy_and_a_spec_none(store: SecretDirectory) -> None:
    await store.put(StoredSecret("modelplane-system", "robot", {".dockerconfigjson": b"{}"}, type="kubernetes.io/dockerconfigjson"))
    spec = {"clusterName": "x", "engines": [an_engine("main", a_member(pull_secrets=["robot"]))]}
    order = ApplyReplica.model_validate({**dict(an_order(ApplyReplica)), "namespace": "ml", "spec": spec})
    by_spec = await needed_copies(store, order, RenderSettings(secrets_propagation="labelled"))
    by_setting = await needed_copies(store, order, RenderSettings(pull_secrets=("robot",), secrets_propagation="off"))
    assert ([*by_spec.copies], [copy.platform for copy in by_setting.copies], by_setting.rewrites, by_setting.hash) == ([], [True], {}, "")
    assert await read_copy_data(store, by_setting.copies[0]) == {"data": {".dockerconfigjson": "e30="}}


async def test_a_tenant_reads_its_own(store: SecretDirectory) -> None:
    assert (await read_credential(store, "ml", "x", "kubeconfig")).value.encode() == CONTENT["kubeconfig"]


@pytest.mark.parametrize("namespace", ["ml", "default", "kube-system", *sorted(STACK_NAMESPACES)])
async def test_a_kubeconfig_is_read_from_the_platforms_namespace_only(store: SecretDirectory, namespace: str) -> None:
    pool = KubernetesPool(store, KubeconfigSettings())
    with pytest.raises(PermissionDenied, match=f"read from namespace modelplane-system, not from {namespace}/x; put the Secret there"):
        await pool.at(Connection(cluster="eu", namespace=namespace, name="x"))


def test_facts_of_a_cluster_name_no_credential() -> None:
    # What a cluster reports is kept by every replica on it.
    assert not {"secret", "token", "connection"} & {part for name in ClusterFacts.model_fields for part in name.split("_")}
