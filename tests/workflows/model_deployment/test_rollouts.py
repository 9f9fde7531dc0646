"""Rollouts that a user controls by command on real pods, and a change that replaces an
immutable claim template.

The other changes of running replicas are in tests/simulation/lives/test_deployments.py,
in virtual time.
"""

import pytest

from tests.workflows.environment.harness import ControlPlane, eventually
from tests.workflows.environment.topologies import (
    CLUSTER,
    H100,
    L40S,
    a_model,
    an_engine,
    claimed_nodes,
    leave_nothing,
    nodes_in_use,
    rolled,
    run,
    the_replica,
    with_image,
)

pytestmark = pytest.mark.testbed

FIRST, SECOND = (f"registry.example/engine:{number}" for number in (1, 2))


def pods(plane: ControlPlane, namespace: str) -> dict[str, str]:
    """Return the images of engine pods, by the uid of the pod."""
    return {
        pod["metadata"]["uid"]: pod["spec"]["containers"][0]["image"]
        for pod in plane.pods(CLUSTER, namespace)
    }


async def only_images(plane: ControlPlane, namespace: str, image: str) -> None:
    """Wait until no pod of another image stays.

    The last old one may still be terminating.
    """

    async def images() -> set[str]:
        return set(pods(plane, namespace).values())

    await eventually(images, lambda found: found == {image})


async def test_a_rollout_is_paused_resumed_undone_and_restarted_by_command(
    plane: ControlPlane, namespace: str
) -> None:
    name = ("md/steered", "-n", namespace)
    document = a_model("steered", namespace, an_engine("main", L40S), replicas=2)
    await plane.apply(document)
    await plane.ready("ModelDeployment", "steered", namespace)
    code, said = await run(plane, "rollout", "status", *name)
    assert (
        code,
        "2 of 2 replicas Ready with the template of generation 1" in said,
    ) == (0, True), said

    held = with_image(document, SECOND)
    held["spec"]["rollout"] = {"paused": True}
    await plane.apply(held)
    paused = await plane.until(
        "ModelDeployment",
        "steered",
        lambda seen: seen["metadata"]["generation"] == 2,
        namespace,
    )
    assert paused["status"]["rollout"]["paused"]
    code, said = await run(plane, "rollout", "status", *name, "--no-watch")
    assert (code, "modelplane rollout resume" in said) == (5, True), said
    assert set(pods(plane, namespace).values()) == {FIRST}

    assert await run(plane, "rollout", "resume", *name) == (
        0,
        "modeldeployment/steered resumed\n",
    )
    code, said = await run(plane, "rollout", "status", *name)
    assert code == 0, said
    await only_images(plane, namespace, SECOND)

    assert await run(plane, "rollout", "undo", *name) == (
        0,
        "modeldeployment/steered rolled back\n",
    )
    code, said = await run(plane, "rollout", "status", *name)
    assert code == 0, said
    await only_images(plane, namespace, FIRST)
    running = pods(plane, namespace)

    assert await run(plane, "rollout", "restart", *name) == (
        0,
        "modeldeployment/steered restarted\n",
    )
    code, said = await run(plane, "rollout", "status", *name)
    assert code == 0, said

    async def left() -> set[str]:
        return pods(plane, namespace).keys() & running.keys()

    await eventually(left, lambda found: not found)
    assert await run(plane, "rollout", "pause", *name) == (
        0,
        "modeldeployment/steered paused\n",
    )
    assert (await plane.describe("ModelDeployment", "steered", namespace))["spec"][
        "rollout"
    ]["paused"]
    await leave_nothing(plane, "steered", namespace)


async def test_another_device_count_needs_another_claim_template_that_the_real_scheduler_allocates(
    plane: ControlPlane, namespace: str
) -> None:
    await plane.apply(a_model("changed", namespace, an_engine("main", H100, gpus=4)))
    await plane.ready("ModelDeployment", "changed", namespace)
    uid = (await the_replica(plane, "changed", namespace))["metadata"]["uid"]
    await rolled(plane, a_model("changed", namespace, an_engine("main", H100, gpus=8)))
    assert (await the_replica(plane, "changed", namespace))["metadata"]["uid"] == uid

    async def counts() -> list[int]:
        found = plane.get(
            CLUSTER,
            f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates",
        )["items"]
        return [
            each["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"]
            for each in found
        ]

    await eventually(counts, lambda found: found == [8])
    (node,) = nodes_in_use(plane, namespace)["h100"]
    assert set(claimed_nodes(plane, namespace)) == {node}
    await leave_nothing(plane, "changed", namespace)
