"""The front behind an APIService of a real API server: users, roles, controllers,
namespaces.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from aiohttp import web

from front.access.access_file import User
from front.serving.app import Front
from testbed.running import Running
from tests.front import kubectl_session
from tests.front.aggregation.aggregated import (
    Aggregated,
    an_aggregated_front,
    external_metrics,
)
from tests.front.kubectl_session import Step, recorded, written
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    eventually,
)

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(900)]

TEAM, OTHERS = "team-agg", "team-others"
ALICE, PAT = kubectl_session.USER, "pat"
# The pause between two calls of kubectl, because each call costs processor time.
REST_SECONDS = 5.0
TOO_SLOW_SECONDS, SLOW_SECONDS = 8.0, 1.0
"""The delays of two fronts. The API server gives up on the first after five seconds."""


def document(name: str, namespace: str = TEAM, replicas: int = 1) -> str:
    return json.dumps(a_deployment(name, namespace, replicas=replicas))


@pytest_asyncio.fixture(scope="module")
async def aggregated(
    plane: ControlPlane, testbed: Running, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Aggregated]:
    cluster = next(iter(testbed.clusters.values()))
    async with an_aggregated_front(
        plane, cluster, tmp_path_factory.mktemp("aggregated")
    ) as aggregated:
        for namespace in (TEAM, OTHERS, kubectl_session.NAMESPACE):
            await aggregated.kubectl("create", "namespace", namespace)
        # Alice has the rights of an editor in her namespaces.
        for namespace in (TEAM, kubectl_session.NAMESPACE):
            await aggregated.kubectl(
                "-n",
                namespace,
                "create",
                "rolebinding",
                ALICE,
                "--clusterrole=edit",
                f"--user={ALICE}",
            )
        await until_usable(aggregated)
        yield aggregated


async def until_usable(aggregated: Aggregated) -> None:
    """Wait until the cluster has the front's schemas and the rules of deploy/front."""

    async def explained() -> str:
        # The API server loads schemas asynchronously.
        return (await aggregated.run("explain", "modeldeployment.spec.replicas"))[1]

    await eventually(
        explained,
        lambda found: "Number of ModelReplicas" in found,
        what="the schemas of the front",
    )

    async def has_edit() -> str:
        # A controller of the cluster adds the rules of deploy/front to the role.
        return await aggregated.kubectl("get", "clusterrole", "edit", "-o", "json")

    await eventually(
        has_edit,
        lambda found: "modeldeployments/scale" in found,
        what="the rules in the role edit",
    )


async def test_roles_of_the_cluster_grant_rights_to_its_users(
    aggregated: Aggregated,
) -> None:
    async def created() -> str:
        return await aggregated.kubectl(
            "apply", "-f", "-", input=document("chat"), user=ALICE
        )

    assert "created" in await created()
    await aggregated.kubectl(
        "-n",
        TEAM,
        "wait",
        "--for=condition=Ready",
        "md/chat",
        "--timeout=240s",
        user=ALICE,
    )
    assert "scaled" in await aggregated.kubectl(
        "-n", TEAM, "scale", "md/chat", "--replicas=2", user=ALICE
    )
    seen = await aggregated.front.plane.describe("ModelDeployment", "chat", TEAM)
    assert (seen["spec"]["replicas"], seen["status"]["lastScale"]["by"]) == (2, "alice")
    for arguments in (
        ("get", "md"),
        ("get", "md", "chat"),
        ("delete", "md", "--all"),
        ("scale", "md/chat", "--replicas=1"),
    ):
        refused = await aggregated.kubectl(
            "-n", OTHERS, *arguments, fails=True, user=ALICE
        )
        assert 'User "alice" cannot' in refused
    refused = await aggregated.kubectl("get", "ic", fails=True, user=ALICE)
    assert 'User "alice" cannot list resource "inferenceclusters"' in refused
    refused = await aggregated.kubectl(
        "apply", "-f", "-", input=document("chat", OTHERS), fails=True, user=ALICE
    )
    assert "cannot" in refused
    assert "deleted" in await aggregated.kubectl(
        "-n", TEAM, "delete", "md/chat", "--timeout=240s", user=ALICE
    )


@pytest.mark.timeout(600)
async def test_every_command_of_the_recorded_session_prints_the_same_through_an_api_server(
    aggregated: Aggregated,
) -> None:
    run = await recorded(aggregated.kubectl, aggregated.front.folder)
    expected = [printed for _, printed in written()]
    stable = [
        number
        for number, (step, _) in enumerate(run)
        if not step.varies and not step.of_users
    ]
    assert [comparable(*run[number]) for number in stable] == [
        comparable(run[number][0], expected[number]) for number in stable
    ]
    printed = {step.arguments[:4]: told for step, told in run}
    assert "+  replicas: 2" in printed["diff", "-f", "FILE"]
    # The watch reports concurrent changes.
    watched = printed["get", "md/qwen", "-w", "--request-timeout=8s"].splitlines()
    assert [line.split()[1] for line in watched[1:]][-1] == "3"
    seen = printed["get", "md/qwen", "-o", "yaml"].splitlines()
    assert {
        "kind: ModelDeployment",
        "  replicas: 4",
        "    owner: ann",
        "    tier: silver",
    } <= set(seen)
    described = printed["describe", "md/qwen"]
    assert "Kind:         ModelDeployment" in described
    lines = [
        line
        for line in aggregated.front.audit()
        if line["namespace"] == kubectl_session.NAMESPACE
    ]
    assert {line["user"] for line in lines} == {ALICE}
    # Without a change, a run prints nothing.
    assert {"create", "patch", "delete"} <= {
        line["verb"] for line in lines if line["outcome"] == "Success"
    }


def comparable(step: Step, printed: str) -> str:
    """Return the output of a command that is the same for the front and the API server.

    The reasons of missing rights differ.
    """
    return (
        printed.partition(" - ")[0]
        if step.arguments[:2] == ("auth", "can-i")
        else printed
    ).strip()


async def test_an_apply_that_creates_needs_the_right_to_create_in_the_cluster(
    aggregated: Aggregated,
) -> None:
    # The API server sends one patch request whether or not the object exists.
    await aggregated.kubectl(
        "-n",
        TEAM,
        "create",
        "role",
        PAT,
        "--verb=get,patch",
        "--resource=modeldeployments.modelplane.ai",
    )
    await aggregated.kubectl(
        "-n", TEAM, "create", "rolebinding", PAT, f"--role={PAT}", f"--user={PAT}"
    )
    apply = ("apply", "--server-side", "-f", "-")
    refused = await aggregated.kubectl(
        *apply, input=document("applied", replicas=0), fails=True, user=PAT
    )
    assert f'User "{PAT}" cannot create resource "modeldeployments"' in refused
    assert (
        await aggregated.front.plane.describe("ModelDeployment", "applied", TEAM) == {}
    )
    assert "serverside-applied" in await aggregated.kubectl(
        *apply, input=document("applied", replicas=0), user=ALICE
    )
    labelled = json.loads(document("applied", replicas=0))
    labelled["metadata"]["labels"] = {"tier": "gold"}
    told = await aggregated.kubectl(
        *apply, "--field-manager=pat", input=json.dumps(labelled), user=PAT
    )
    assert "serverside-applied" in told
    seen = await aggregated.get("-n", TEAM, "md", "applied", "--show-managed-fields")
    managers = {
        (entry["manager"], entry["operation"])
        for entry in seen["metadata"]["managedFields"]
    }
    assert ({("kubectl", "Apply"), ("pat", "Apply")}, {"tier": "gold"}) == (
        managers,
        seen["metadata"]["labels"],
    )
    await aggregated.kubectl(
        "-n", TEAM, "delete", "md/applied", "--timeout=240s", user=ALICE
    )


async def test_the_autoscaler_of_the_cluster_scales_a_deployment(
    aggregated: Aggregated,
) -> None:
    await aggregated.kubectl("apply", "-f", "-", input=document("auto"))
    await aggregated.kubectl(
        "-n", TEAM, "wait", "--for=condition=Ready", "md/auto", "--timeout=240s"
    )
    async with external_metrics(aggregated) as metrics:
        await _scaled_by_a_metric(aggregated, metrics)


async def _scaled_by_a_metric(aggregated: Aggregated, metrics: dict[str, int]) -> None:
    metrics["queue"] = 30
    await aggregated.kubectl(
        "apply", "-f", "-", input=json.dumps(an_autoscaler("auto"))
    )

    async def scaled() -> tuple[int, str]:
        seen = await aggregated.front.plane.describe("ModelDeployment", "auto", TEAM)
        return seen["spec"]["replicas"], seen["status"].get("lastScale", {}).get(
            "by", ""
        )

    writer = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
    await eventually(scaled, lambda found: found == (3, writer), what="three replicas")
    await aggregated.kubectl(
        "-n",
        TEAM,
        "wait",
        "--for=jsonpath={.status.replicas.ready}=3",
        "md/auto",
        "--timeout=240s",
    )
    metrics["queue"] = 5
    await eventually(scaled, lambda found: found == (1, writer), what="one replica")
    seen = await aggregated.get("-n", TEAM, "hpa", "auto")
    conditions = {each["type"]: each["status"] for each in seen["status"]["conditions"]}
    assert (conditions["AbleToScale"], conditions["ScalingActive"]) == ("True", "True")
    await aggregated.kubectl(
        "-n", TEAM, "delete", "hpa/auto", "md/auto", "--timeout=240s"
    )


def an_autoscaler(name: str) -> Json:
    metric = {
        "metric": {"name": "queue"},
        "target": {"type": "AverageValue", "averageValue": "10"},
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "modelplane.ai/v1alpha1",
                "kind": "ModelDeployment",
                "name": name,
            },
            "minReplicas": 1,
            "maxReplicas": 5,
            "metrics": [{"type": "External", "external": metric}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }


@dataclass
class Slowness:
    """The delay of each front's responses in seconds."""

    seconds: float = 0.0


@pytest.fixture
def slowness(monkeypatch: pytest.MonkeyPatch) -> Slowness:
    """Delay the responses of fronts in this process."""
    answer, slowness = Front._routed, Slowness()

    async def slow(
        front: Front, request: web.Request, path: str, user: User
    ) -> web.StreamResponse:
        await asyncio.sleep(slowness.seconds)
        return await answer(front, request, path, user)

    monkeypatch.setattr(Front, "_routed", slow)
    return slowness


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_deleting_a_namespace_deletes_its_models_and_waits_for_the_front(
    aggregated: Aggregated, slowness: Slowness
) -> None:
    waiting = ("leaving-later", "leaving-last", "leaving-slowly")
    for namespace in ("leaving", *waiting):
        await aggregated.kubectl("create", "namespace", namespace)
        await aggregated.kubectl(
            "apply", "-f", "-", input=document("chat", namespace, replicas=0)
        )
    await aggregated.kubectl("delete", "namespace", "leaving", "--timeout=240s")
    await aggregated.front.plane.gone("ModelDeployment", "chat", "leaving")

    slowness.seconds = TOO_SLOW_SECONDS
    await aggregated.until_available(status="False")
    await _stays(aggregated, "leaving-later")
    await aggregated.front.shut_down()
    await _stays(aggregated, "leaving-last")
    for namespace in waiting:
        assert await aggregated.front.plane.describe(
            "ModelDeployment", "chat", namespace
        )

    # A slow front only delays its own requests.
    slowness.seconds = SLOW_SECONDS
    await aggregated.front.start()
    await aggregated.until_available()
    await aggregated.kubectl("delete", "namespace", "leaving-slowly", "--wait=false")

    async def looked_for() -> str:
        return (
            await aggregated.run(
                "get", "namespace", *waiting, "--ignore-not-found", "-o", "name"
            )
        )[1]

    # Kubernetes checks again after up to a minute.
    await eventually(
        looked_for,
        lambda found: not found.strip(),
        within=240,
        longest_pause=REST_SECONDS,
        what="the end of the namespaces",
    )
    await aggregated.until_available()
    for namespace in waiting:
        await aggregated.front.plane.gone("ModelDeployment", "chat", namespace)


async def _stays(aggregated: Aggregated, namespace: str) -> None:
    """Delete a namespace, and wait until Kubernetes reports why it remains."""
    await aggregated.kubectl("delete", "namespace", namespace, "--wait=false")

    async def why() -> list[str]:
        seen = await aggregated.get("namespace", namespace)
        return [
            each["type"]
            for each in seen["status"].get("conditions", ())
            if each["status"] == "True"
        ]

    # Kubernetes does not delete a namespace whose content it cannot list.
    await eventually(
        why,
        lambda found: "NamespaceDeletionDiscoveryFailure" in found,
        longest_pause=REST_SECONDS,
        what="the reason why the namespace stays",
    )
