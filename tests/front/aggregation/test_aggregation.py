"""The front behind the APIService of a real API server: its users, its roles, its controllers and its namespaces."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from testbed.running import Running
from tests.front.aggregation.aggregated import Aggregated, an_aggregated_front, external_metrics
from tests.workflows.environment.harness import ControlPlane, Json, a_deployment, eventually

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(300)]

TEAM, OTHERS = "team-agg", "team-others"
ALICE = "alice"


def document(name: str, namespace: str = TEAM, replicas: int = 1) -> str:
    return json.dumps(a_deployment(name, namespace, replicas=replicas))


@pytest_asyncio.fixture(scope="module")
async def aggregated(plane: ControlPlane, testbed: Running, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Aggregated]:
    cluster = next(iter(testbed.clusters.values()))
    async with an_aggregated_front(plane, cluster, tmp_path_factory.mktemp("aggregated")) as aggregated:
        for namespace in (TEAM, OTHERS):
            await aggregated.kubectl("create", "namespace", namespace)
        # Alice may do in her namespace what an editor may.
        await aggregated.kubectl("-n", TEAM, "create", "rolebinding", "alice", "--clusterrole=edit", "--user=alice")
        yield aggregated


async def test_users_of_the_cluster_do_what_their_roles_allow(aggregated: Aggregated) -> None:
    async def explained() -> str:
        # The API server fetches schemas in a time of its own.
        return (await aggregated.run("explain", "modeldeployment.spec.replicas"))[1]

    await eventually(explained, lambda found: "Number of ModelReplicas" in found, what="the schemas of the front")

    async def has_edit() -> str:
        # A controller of the cluster brings the rules of deploy/front into the role.
        return await aggregated.kubectl("get", "clusterrole", "edit", "-o", "json")

    await eventually(has_edit, lambda found: "modeldeployments/scale" in found, what="the rules in the role edit")

    async def created() -> str:
        return await aggregated.kubectl("apply", "-f", "-", input=document("chat"), user=ALICE)

    assert "created" in await created()
    await aggregated.kubectl("-n", TEAM, "wait", "--for=condition=Ready", "md/chat", "--timeout=50s", user=ALICE)
    assert "scaled" in await aggregated.kubectl("-n", TEAM, "scale", "md/chat", "--replicas=2", user=ALICE)
    seen = await aggregated.front.plane.describe("ModelDeployment", "chat", TEAM)
    assert (seen["spec"]["replicas"], seen["status"]["lastScale"]["by"]) == (2, "alice")
    for arguments in (("get", "md"), ("get", "md", "chat"), ("delete", "md", "--all"), ("scale", "md/chat", "--replicas=1")):
        refused = await aggregated.kubectl("-n", OTHERS, *arguments, fails=True, user=ALICE)
        assert 'User "alice" cannot' in refused
    refused = await aggregated.kubectl("get", "ic", fails=True, user=ALICE)
    assert 'User "alice" cannot list resource "inferenceclusters"' in refused
    refused = await aggregated.kubectl("apply", "-f", "-", input=document("chat", OTHERS), fails=True, user=ALICE)
    assert "cannot" in refused
    assert "deleted" in await aggregated.kubectl("-n", TEAM, "delete", "md/chat", "--timeout=50s", user=ALICE)


async def test_the_autoscaler_of_the_cluster_scales_a_deployment(aggregated: Aggregated) -> None:
    await aggregated.kubectl("apply", "-f", "-", input=document("auto"))
    await aggregated.kubectl("-n", TEAM, "wait", "--for=condition=Ready", "md/auto", "--timeout=50s")
    async with external_metrics(aggregated) as metrics:
        await _scaled_by_a_metric(aggregated, metrics)


async def _scaled_by_a_metric(aggregated: Aggregated, metrics: dict[str, int]) -> None:
    metrics["queue"] = 30
    await aggregated.kubectl("apply", "-f", "-", input=json.dumps(an_autoscaler("auto")))

    async def scaled() -> tuple[int, str]:
        seen = await aggregated.front.plane.describe("ModelDeployment", "auto", TEAM)
        return seen["spec"]["replicas"], seen["status"].get("lastScale", {}).get("by", "")

    writer = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
    await eventually(scaled, lambda found: found == (3, writer), what="three replicas")
    await aggregated.kubectl("-n", TEAM, "wait", "--for=jsonpath={.status.replicas.ready}=3", "md/auto", "--timeout=50s")
    metrics["queue"] = 5
    await eventually(scaled, lambda found: found == (1, writer), what="one replica")
    seen = await aggregated.get("-n", TEAM, "hpa", "auto")
    conditions = {each["type"]: each["status"] for each in seen["status"]["conditions"]}
    assert (conditions["AbleToScale"], conditions["ScalingActive"]) == ("True", "True")
    await aggregated.kubectl("-n", TEAM, "delete", "hpa/auto", "md/auto", "--timeout=50s")


def an_autoscaler(name: str) -> Json:
    metric = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {
            "scaleTargetRef": {"apiVersion": "modelplane.ai/v1alpha1", "kind": "ModelDeployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 5,
            "metrics": [{"type": "External", "external": metric}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }


async def test_a_namespace_takes_its_models_with_it_and_waits_for_a_front_that_is_down(aggregated: Aggregated) -> None:
    for namespace in ("leaving", "leaving-later"):
        await aggregated.kubectl("create", "namespace", namespace)
        await aggregated.kubectl("apply", "-f", "-", input=document("chat", namespace))
    await aggregated.kubectl("delete", "namespace", "leaving", "--timeout=50s")
    await aggregated.front.plane.gone("ModelDeployment", "chat", "leaving")

    await aggregated.front.shut_down()
    await aggregated.until_available(status="False")
    await aggregated.kubectl("delete", "namespace", "leaving-later", "--wait=false")

    async def why() -> list[str]:
        seen = await aggregated.get("namespace", "leaving-later")
        return [each["type"] for each in seen["status"].get("conditions", ()) if each["status"] == "True"]

    # Kubernetes deletes no namespace of which it cannot tell what is in it.
    await eventually(why, lambda found: "NamespaceDeletionDiscoveryFailure" in found, what="the reason why the namespace stays")
    await aggregated.front.start()
    await aggregated.until_available()

    async def looked_for() -> str:
        return (await aggregated.run("get", "namespace", "leaving-later"))[1]

    # Kubernetes looks again after up to a minute.
    await eventually(looked_for, lambda found: "NotFound" in found, within=180, what="the end of the namespace")
    await aggregated.front.plane.gone("ModelDeployment", "chat", "leaving-later")
