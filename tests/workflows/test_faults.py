"""A bad line to a cluster, and objects that do not want to go: nothing is lost, nothing doubled, and a condition says what is awaited."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata

from activities.secrets import SecretStore, StoredSecret
from api_types import labels
from api_types.messages import Force, RetryNow
from testbed.manifests import secret_name
from tests.workflows.faulty_proxy import HEALING, SEED, Always, Fault, FaultyProxy, Storm, faulty_proxy
from tests.workflows.harness import ControlPlane, Json, a_deployment, condition, eventually, message, reason

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(600)]

CLUSTER = "prod-eu"
HOLD = "example.com/hold"


@pytest.fixture
def namespace() -> str:
    """A tenant of the test's own."""
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def line(plane: ControlPlane, store: SecretStore, tmp_path: Path) -> AsyncIterator[FaultyProxy]:
    """A proxy on the way to the cluster, put there as a rotated kubeconfig and taken away at the end."""
    cluster = plane.running.clusters[CLUSTER]
    async with faulty_proxy(cluster, tmp_path) as proxy:
        await put_kubeconfig(store, proxy.kubeconfig())

        async def served() -> int:
            return proxy.served

        # The observer's next question goes the new way, and its watches with it.
        await eventually(served, lambda count: count > 20, within=60, what="the way through the proxy")
        yield proxy
        proxy.plan = None
        await put_kubeconfig(store, cluster.kubeconfig.read_bytes())


async def put_kubeconfig(store: SecretStore, content: bytes) -> None:
    await store.put(StoredSecret(labels.SYSTEM_NAMESPACE, secret_name(CLUSTER), {"kubeconfig": content}))


def here(name: str, namespace: str, **more: Any) -> Json:
    """A deployment that may run on the cluster behind the bad line only."""
    return a_deployment(name, namespace, clusterSelector={"matchLabels": {"modelplane.ai/region": "eu-west"}}, **more)


def ready_count(seen: Json) -> int:
    return int(seen.get("status", {}).get("replicas", {}).get("ready", 0))


async def the_replica(plane: ControlPlane, name: str, namespace: str) -> str:
    seen = await plane.describe("ModelDeployment", name, namespace)
    (placement,) = seen["status"]["placements"]
    replica: str = placement["replica"]
    return replica


def workload(plane: ControlPlane, namespace: str) -> str:
    """The path of the only engine of a namespace."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    (item,) = plane.get(CLUSTER, path)["items"]
    return f"{path}/{item['metadata']['name']}"


def set_finalizers(plane: ControlPlane, path: str, *finalizers: str) -> None:
    plane.call(CLUSTER, "PATCH", path, {"metadata": {"finalizers": list(finalizers) or None}}, "application/merge-patch+json")


async def images(plane: ControlPlane, namespace: str) -> list[str]:
    """The images of the pods that are to stay, sorted."""
    pods = [pod for pod in plane.pods(CLUSTER, namespace) if not pod["metadata"].get("deletionTimestamp")]
    return sorted(pod["spec"]["containers"][0]["image"] for pod in pods)


async def held(plane: ControlPlane, namespace: str) -> list[Json]:
    """What the ledger holds for a tenant."""
    return [entry for entry in await plane.scheduler("ledger") if entry["namespace"] == namespace]


async def nothing_is_left(plane: ControlPlane, namespace: str) -> None:
    assert plane.our_objects(CLUSTER, namespace) == []
    await eventually(lambda: held(plane, namespace), lambda entries: entries == [], what="the ledger's release of every node")
    assert await plane.scheduler("audit") == []


async def clean_up(plane: ControlPlane, name: str, namespace: str) -> None:
    await plane.delete("ModelDeployment", name, namespace)
    await plane.gone("ModelDeployment", name, namespace, within=90)
    await nothing_is_left(plane, namespace)


# --- a bad line -----------------------------------------------------------------------------------------------------------------------


async def test_a_life_over_a_line_that_spoils_every_twentieth_request_ends_as_any_other(
    plane: ControlPlane, namespace: str, line: FaultyProxy
) -> None:
    print(f"seed {SEED}")  # noqa: T201 - a failure must be repeatable
    async with line.failing(Storm(share=0.05)):
        await plane.apply(here("tough", namespace, replicas=2))
        await plane.until("ModelDeployment", "tough", lambda seen: ready_count(seen) == 2, namespace, within=120)
        await plane.apply(here("tough", namespace, replicas=3, image="registry.example/engine:2"))

        async def running() -> list[str]:
            return await images(plane, namespace)

        await eventually(running, lambda found: found == ["registry.example/engine:2"] * 3, within=120)
        seen = await plane.ready("ModelDeployment", "tough", namespace, within=120)
        assert len({placement["replica"] for placement in seen["status"]["placements"]}) == len(await held(plane, namespace)) == 3
        await plane.delete("ModelDeployment", "tough", namespace)
        await plane.gone("ModelDeployment", "tough", namespace, within=120)
    assert set(line.injected) == set(HEALING), f"the storm was too short to try everything: {line.injected}"
    await nothing_is_left(plane, namespace)


REFUSED = [(Fault.INVALID, "InvalidSpec", "injected Invalid"), (Fault.ERROR, "ServerError", "injected InternalError")]


@pytest.mark.parametrize("refusal", REFUSED, ids=lambda refusal: refusal[0].name)
async def test_wkl_11_a_refused_apply_says_so_and_is_tried_again(
    plane: ControlPlane, namespace: str, line: FaultyProxy, refusal: tuple[Fault, str, str]
) -> None:
    fault, why, words = refusal
    async with line.failing(Always(fault, "PATCH", "/deployments/")):
        await plane.apply(here("refused", namespace))
        await plane.until("ModelDeployment", "refused", lambda seen: seen.get("status", {}).get("placements"), namespace)
        name = await the_replica(plane, "refused", namespace)
        seen = await plane.until("ModelReplica", name, lambda seen: reason(seen, "ModelAccepted") == why, namespace)
        assert words in message(seen, "ModelAccepted")
        assert "apps/v1/Deployment" in message(seen, "ModelAccepted")
    await plane.handle("ModelReplica", name, namespace).signal("retry_now", RetryNow(by="test").wire())
    await plane.ready("ModelDeployment", "refused", namespace, within=30)
    await clean_up(plane, "refused", namespace)


@pytest.mark.parametrize("fault", [Fault.INVALID, Fault.CONFLICT, Fault.THROTTLED, Fault.ERROR], ids=lambda fault: fault.name)
async def test_wkl_11_a_refused_deletion_is_no_deletion(plane: ControlPlane, namespace: str, line: FaultyProxy, fault: Fault) -> None:
    await plane.apply(here("refused", namespace))
    await plane.ready("ModelDeployment", "refused", namespace)
    name = await the_replica(plane, "refused", namespace)
    async with line.failing(Always(fault, "DELETE", "/deployments/")):
        await plane.delete("ModelDeployment", "refused", namespace)
        seen = await plane.until("ModelReplica", name, lambda seen: waits_at_step(seen, 7), namespace, within=45)
        assert "step 7 of 12: delete the engines" in message(seen, "Deleting")
        assert len(await held(plane, namespace)) == 1
        assert workload(plane, namespace)
    await plane.handle("ModelReplica", name, namespace).signal("retry_now", RetryNow(by="test").wire())
    await plane.gone("ModelDeployment", "refused", namespace, within=45)
    await nothing_is_left(plane, namespace)


def waits_at_step(seen: Json, number: int) -> bool:
    steps = seen.get("status", {}).get("teardown", {}).get("steps", ())
    return any((step["number"], step["state"]) == (number, "waiting") for step in steps)


async def test_wkl_113_a_line_that_goes_dark_during_a_rollout_and_a_teardown_costs_only_time(
    plane: ControlPlane, namespace: str, line: FaultyProxy
) -> None:
    await plane.apply(here("rolling", namespace))
    await plane.apply(here("leaving", namespace))
    await plane.ready("ModelDeployment", "rolling", namespace)
    await plane.ready("ModelDeployment", "leaving", namespace)
    rolling, leaving = await the_replica(plane, "rolling", namespace), await the_replica(plane, "leaving", namespace)
    async with line.dark():
        await plane.apply(here("rolling", namespace, image="registry.example/engine:2"))
        await plane.delete("ModelDeployment", "leaving", namespace)
        await says_unreachable(plane, namespace, rolling, leaving)
        # Nothing that serves is taken off the air because of a silence this short.
        assert condition(await plane.describe("ModelReplica", rolling, namespace), "Serving") == "True"
        plane.worker.kill()
        await asyncio.to_thread(plane.worker.start)
    await went_on(plane, namespace, "registry.example/engine:2")
    await clean_up(plane, "rolling", namespace)


async def says_unreachable(plane: ControlPlane, namespace: str, rolling: str, leaving: str) -> None:
    """What a rollout and a teardown say while their API server does not answer."""
    stuck = await plane.until(
        "ModelReplica", rolling, lambda seen: reason(seen, "ModelAccepted") == "ClusterUnreachable", namespace, within=45
    )
    assert f"cluster {CLUSTER}: no answer from https://127.0.0.1" in message(stuck, "ModelAccepted")
    held_up = await plane.until(
        "ModelReplica", leaving, lambda seen: reason(seen, "Deleting") == "ClusterUnreachable", namespace, within=45
    )
    assert held_up["status"]["phase"] == "Unreachable"
    assert "tried again" in message(held_up, "Deleting")
    whole = await plane.until(
        "ModelDeployment", "leaving", lambda seen: "no answer from" in message(seen, "Deleting"), namespace, within=15
    )
    assert f"{leaving} on {CLUSTER}" in message(whole, "Deleting")
    assert {entry["deployment"] for entry in await held(plane, namespace)} == {"rolling", "leaving"}


async def went_on(plane: ControlPlane, namespace: str, image: str, within: float = 90) -> None:
    """The rollout and the teardown come to their ends once the API server answers."""
    await plane.gone("ModelDeployment", "leaving", namespace, within=within)

    async def running() -> list[str]:
        return await images(plane, namespace)

    await eventually(running, lambda found: found == [image], within=within, what="the rollout")
    await plane.ready("ModelDeployment", "rolling", namespace, within=90)
    (entry,) = await held(plane, namespace)
    assert entry["deployment"] == "rolling"


# --- what does not want to go ---------------------------------------------------------------------------------------------------------


async def test_wkl_10_a_finalizer_that_never_goes_is_named_and_holds_the_nodes_until_it_is_removed(
    plane: ControlPlane, namespace: str
) -> None:
    await plane.apply(here("sticky", namespace))
    await plane.ready("ModelDeployment", "sticky", namespace)
    name, path = await the_replica(plane, "sticky", namespace), workload(plane, namespace)
    set_finalizers(plane, path, HOLD)
    await plane.delete("ModelDeployment", "sticky", namespace)
    seen = await plane.until("ModelReplica", name, lambda seen: f"finalizer {HOLD}" in message(seen, "Deleting"), namespace, within=45)
    assert f"waits until gone: Deployment {namespace}/{path.rpartition('/')[2]}" in message(seen, "Deleting")
    done = [step["number"] for step in seen["status"]["teardown"]["steps"] if step["state"] in ("done", "nothing there")]
    assert done == [1, 2, 3, 4, 5, 6]
    shown = await plane.handle("ModelReplica", name, namespace).query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    assert "| 7 | delete the engines | waiting | Deployment" in shown.current_details
    whole = await plane.until("ModelDeployment", "sticky", lambda seen: HOLD in message(seen, "Deleting"), namespace, within=15)
    assert reason(whole, "Deleting") == "WaitingForReplicas"
    assert len(await held(plane, namespace)) == 1
    set_finalizers(plane, path)
    await plane.gone("ModelDeployment", "sticky", namespace, within=45)
    await nothing_is_left(plane, namespace)


async def test_wkl_6_what_an_update_left_and_does_not_go_holds_up_neither_the_rollout_nor_a_deletion(
    plane: ControlPlane, namespace: str
) -> None:
    await plane.apply(here("updated", namespace, gpus=1))
    await plane.ready("ModelDeployment", "updated", namespace)
    name = await the_replica(plane, "updated", namespace)
    templates = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"
    (old,) = plane.get(CLUSTER, templates)["items"]
    set_finalizers(plane, f"{templates}/{old['metadata']['name']}", HOLD)
    await plane.apply(here("updated", namespace, gpus=2))
    told = await plane.until("ModelReplica", name, lambda seen: HOLD in str(event_messages(seen, "Pruning")), namespace, within=60)
    assert f"ResourceClaimTemplate {namespace}/{old['metadata']['name']}" in event_messages(told, "Pruning")[-1]
    await plane.ready("ModelDeployment", "updated", namespace, within=30)
    await plane.delete("ModelDeployment", "updated", namespace)
    await plane.until("ModelReplica", name, lambda seen: waits_at_step(seen, 9), namespace, within=60)
    set_finalizers(plane, f"{templates}/{old['metadata']['name']}")
    await plane.gone("ModelDeployment", "updated", namespace, within=45)
    await nothing_is_left(plane, namespace)


def event_messages(seen: Json, why: str) -> list[str]:
    return [event["message"] for event in seen.get("status", {}).get("events", ()) if event["reason"] == why]


async def test_ruling_74_a_step_that_is_given_up_is_listed_and_the_next_one_follows(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(here("forced", namespace))
    await plane.ready("ModelDeployment", "forced", namespace)
    name, path = await the_replica(plane, "forced", namespace), workload(plane, namespace)
    set_finalizers(plane, path, HOLD)
    await plane.delete("ModelDeployment", "forced", namespace)
    await plane.until("ModelReplica", name, lambda seen: HOLD in message(seen, "Deleting"), namespace, within=45)
    order = Force(request_id=uuid.uuid4().hex, by="test", scope="step", reason="the finalizer's owner is gone")
    await plane.handle("ModelDeployment", "forced", namespace).signal("force", order.wire())
    await plane.gone("ModelDeployment", "forced", namespace, within=60)
    for kind, object_name in (("ModelReplica", name), ("ModelDeployment", "forced")):
        (left,) = (await plane.handle(kind, object_name, namespace).query("describe"))["status"]["leftBehind"]
        assert (left["kind"], left["namespace"], left["name"]) == ("Deployment", namespace, path.rpartition("/")[2])
        assert left["location"] == CLUSTER
        assert "step 7 (delete the engines) was given up" in left["reason"]
    assert plane.our_objects(CLUSTER, namespace) == [f"Deployment/{path.rpartition('/')[2]}"]
    set_finalizers(plane, path)
    await nothing_is_left(plane, namespace)


async def test_ruling_74_giving_up_everything_takes_what_can_go_and_lists_the_rest(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(here("forced", namespace))
    await plane.ready("ModelDeployment", "forced", namespace)
    path = workload(plane, namespace)
    set_finalizers(plane, path, HOLD)
    await plane.delete("ModelDeployment", "forced", namespace)
    order = Force(request_id=uuid.uuid4().hex, by="test", scope="all", reason="the tenant is gone")
    await plane.handle("ModelDeployment", "forced", namespace).signal("force", order.wire())
    await plane.gone("ModelDeployment", "forced", namespace, within=60)
    found = (await plane.handle("ModelDeployment", "forced", namespace).query("describe"))["status"]["leftBehind"]
    assert path.rpartition("/")[2] in {left["name"] for left in found if left["kind"] == "Deployment"}
    assert {left["kind"] for left in found} <= {"Deployment", "Pod", "ReplicaSet", "ResourceClaim"}
    set_finalizers(plane, path)
    await nothing_is_left(plane, namespace)


async def test_a_namespace_that_is_deleted_under_a_replica_is_made_anew_once_it_is_gone(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(here("homeless", namespace))
    await plane.ready("ModelDeployment", "homeless", namespace)
    name = await the_replica(plane, "homeless", namespace)
    hold_namespace(plane, namespace)
    plane.call(CLUSTER, "DELETE", f"/api/v1/namespaces/{namespace}")
    told = await plane.until(
        "ModelReplica", name, lambda seen: "the namespace is being deleted" in message(seen, "ModelAccepted"), namespace, within=90
    )
    assert condition(told, "Ready") == "False"
    assert len(await held(plane, namespace)) == 1
    release_namespace(plane, namespace)
    await plane.until("ModelReplica", name, lambda seen: condition(seen, "Ready") == "True", namespace, within=90)
    assert await images(plane, namespace) == ["registry.example/engine:1"]
    await clean_up(plane, "homeless", namespace)


async def test_a_namespace_that_is_being_deleted_does_not_hold_a_teardown_up(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(here("leaving", namespace))
    await plane.ready("ModelDeployment", "leaving", namespace)
    hold_namespace(plane, namespace)
    plane.call(CLUSTER, "DELETE", f"/api/v1/namespaces/{namespace}")
    await plane.delete("ModelDeployment", "leaving", namespace)
    await plane.gone("ModelDeployment", "leaving", namespace, within=60)
    await nothing_is_left(plane, namespace)
    release_namespace(plane, namespace)


def hold_namespace(plane: ControlPlane, namespace: str) -> None:
    """Have something of somebody else's in a namespace that does not let it go."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "finalizers": [HOLD]}}
    plane.call(CLUSTER, "POST", f"/api/v1/namespaces/{namespace}/configmaps", body)


def release_namespace(plane: ControlPlane, namespace: str) -> None:
    set_finalizers(plane, f"/api/v1/namespaces/{namespace}/configmaps/theirs")
