"""How changes reach running replicas (spec/workloads.md 6), row by row, and rollouts that a user pauses and undoes."""

import time
from dataclasses import dataclass, field

import pytest

from api_types import labels
from api_types.base import AHEAD_MS_MAX
from tests.workflows.environment.harness import ControlPlane, Json, condition, eventually, reason
from tests.workflows.environment.topologies import (
    CLUSTER,
    H100,
    L40S,
    a_gang,
    a_model,
    an_engine,
    claimed_nodes,
    connection_of,
    leave_nothing,
    nodes_in_use,
    rolled,
    routed_by_pools,
    run,
    the_replica,
    watching,
    with_image,
)

pytestmark = pytest.mark.testbed

FIRST, SECOND, THIRD = (f"registry.example/engine:{number}" for number in (1, 2, 3))


def sequence_ahead() -> int:
    """Give a number above all that the cluster sends during a test, and within what receivers take."""
    return int(time.time() * 1000) + AHEAD_MS_MAX // 2


def pods(plane: ControlPlane, namespace: str) -> dict[str, str]:
    """The images that engines run, by the uid of the pod."""
    return {pod["metadata"]["uid"]: pod["spec"]["containers"][0]["image"] for pod in plane.pods(CLUSTER, namespace)}


async def only_images(plane: ControlPlane, namespace: str, image: str) -> None:
    """See that no pod of another image stays; the last old one may still be ending."""

    async def images() -> set[str]:
        return set(pods(plane, namespace).values())

    await eventually(images, lambda found: found == {image})


def counts(seen: Json) -> tuple[int, int]:
    """How many replicas are Ready with the present template, and how many there are."""
    rollout = seen["status"]["rollout"]
    return rollout["updatedReady"], rollout["total"]


@pytest.mark.long
async def test_wkl_102_a_new_image_reaches_one_replica_at_a_time_and_a_newer_one_takes_over(plane: ControlPlane, namespace: str) -> None:
    document = a_model("rolled", namespace, an_engine("main", L40S, ready_after="1s"), replicas=3)
    await plane.apply(document)
    before = await plane.ready("ModelDeployment", "rolled", namespace)
    async with watching(plane, "rolled", namespace) as watched:
        await plane.apply(with_image(document, SECOND))
        await plane.until("ModelDeployment", "rolled", lambda seen: seen["metadata"]["generation"] == 2 and counts(seen)[0] >= 1, namespace)
        after = await rolled(plane, with_image(document, THIRD))
    assert watched.endpoints_fewest >= 2
    assert watched.nodes_most["l40s"] <= 4
    await only_images(plane, namespace, THIRD)
    assert [each["replica"] for each in after["status"]["placements"]] == [each["replica"] for each in before["status"]["placements"]]
    assert after["status"]["rollout"]["revisions"] == [1, 2]
    await leave_nothing(plane, "rolled", namespace)


async def test_a_rollout_is_paused_resumed_undone_and_begun_again_by_command(plane: ControlPlane, namespace: str) -> None:
    name = ("md/steered", "-n", namespace)
    document = a_model("steered", namespace, an_engine("main", L40S), replicas=2)
    await plane.apply(document)
    await plane.ready("ModelDeployment", "steered", namespace)
    code, said = await run(plane, "rollout", "status", *name)
    assert (code, "2 of 2 replicas Ready with the template of generation 1" in said) == (0, True), said

    held = with_image(document, SECOND)
    held["spec"]["rollout"] = {"paused": True}
    await plane.apply(held)
    paused = await plane.until("ModelDeployment", "steered", lambda seen: seen["metadata"]["generation"] == 2, namespace)
    assert paused["status"]["rollout"]["paused"]
    code, said = await run(plane, "rollout", "status", *name, "--no-watch")
    assert (code, "modelplane rollout resume" in said) == (5, True), said
    assert set(pods(plane, namespace).values()) == {FIRST}

    assert await run(plane, "rollout", "resume", *name) == (0, "modeldeployment/steered resumed\n")
    code, said = await run(plane, "rollout", "status", *name)
    assert code == 0, said
    await only_images(plane, namespace, SECOND)

    assert await run(plane, "rollout", "undo", *name) == (0, "modeldeployment/steered rolled back\n")
    code, said = await run(plane, "rollout", "status", *name)
    assert code == 0, said
    await only_images(plane, namespace, FIRST)
    running = pods(plane, namespace)

    assert await run(plane, "rollout", "restart", *name) == (0, "modeldeployment/steered restarted\n")
    code, said = await run(plane, "rollout", "status", *name)
    assert code == 0, said

    async def left() -> set[str]:
        return pods(plane, namespace).keys() & running.keys()

    await eventually(left, lambda found: not found)
    assert await run(plane, "rollout", "pause", *name) == (0, "modeldeployment/steered paused\n")
    assert (await plane.describe("ModelDeployment", "steered", namespace))["spec"]["rollout"]["paused"]
    await leave_nothing(plane, "steered", namespace)


@pytest.mark.long
async def test_a_rollout_that_is_paused_midway_stays_midway(plane: ControlPlane, namespace: str) -> None:
    document = a_model("midway", namespace, an_engine("main", L40S, ready_after="2s"), replicas=3)
    await plane.apply(document)
    await plane.ready("ModelDeployment", "midway", namespace)
    await plane.apply(with_image(document, SECOND))
    await plane.until(
        "ModelDeployment",
        "midway",
        lambda seen: seen["metadata"]["generation"] == 2 and seen["status"]["rollout"]["updated"] == 1,
        namespace,
    )
    held = with_image(document, SECOND)
    held["spec"]["rollout"] = {"paused": True}
    await plane.apply(held)
    stopped = await plane.until(
        "ModelDeployment",
        "midway",
        lambda seen: seen["status"]["replicas"]["ready"] == 3 and seen["status"]["rollout"]["updatedReady"] >= 1,
        namespace,
    )
    changed = stopped["status"]["rollout"]["updated"]
    assert changed < 3
    assert condition(stopped, "Ready") == "False"
    await plane.apply(with_image(document, SECOND))
    await plane.ready("ModelDeployment", "midway", namespace)
    await only_images(plane, namespace, SECOND)
    await leave_nothing(plane, "midway", namespace)


@dataclass(frozen=True)
class Change:
    """An edit of the engines of one replica, and what is true of the cluster afterwards."""

    story: str
    before: list[Json]
    after: list[Json]
    workloads: dict[str, int]
    nodes: dict[str, int] = field(default_factory=lambda: {"h100": 1})
    replaced: bool = False


CHANGES = [
    Change("29 the device count", [an_engine("main", H100, gpus=4)], [an_engine("main", H100, gpus=8)], {"Deployment": 1}),
    Change("copies", [an_engine("main", H100)], [an_engine("main", H100, copies=2)], {"Deployment": 1}, {"h100": 2}),
    Change("the size of a gang", [a_gang(nodes=1)], [a_gang(nodes=2)], {"LeaderWorkerSet": 1}, {"h100": 3}),
    Change("104 one pod becomes a gang", [an_engine("main", H100)], [a_gang(nodes=1)], {"LeaderWorkerSet": 1}, {"h100": 2}, replaced=True),
    Change("an engine is renamed", [an_engine("main", H100)], [an_engine("other", H100)], {"Deployment": 1}, replaced=True),
    Change("another pool", [an_engine("main", H100)], [an_engine("main", L40S)], {"Deployment": 1}, {"l40s": 1}, replaced=True),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"wkl {change.story}")
async def test_a_changed_engine_reaches_the_cluster_as_its_row_says(plane: ControlPlane, namespace: str, change: Change) -> None:
    await plane.apply(a_model("changed", namespace, *change.before))
    await plane.ready("ModelDeployment", "changed", namespace)
    uid = (await the_replica(plane, "changed", namespace))["metadata"]["uid"]
    async with watching(plane, "changed", namespace) as watched:
        await rolled(plane, a_model("changed", namespace, *change.after))
    replica = await the_replica(plane, "changed", namespace)
    assert (replica["metadata"]["uid"] != uid) is change.replaced
    assert {pool: len(nodes) for pool, nodes in nodes_in_use(plane, namespace).items()} == change.nodes
    assert frozenset({"Deployment", "LeaderWorkerSet"}) not in watched.together

    async def templates() -> list[Json]:
        found: list[Json] = plane.get(CLUSTER, f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates")["items"]
        return found

    members = sum(len(engine["members"]) for engine in change.after)
    (wanted, *_) = await eventually(templates, lambda found: len(found) == members)
    engine = change.after[0]["members"][0]["nodeSelector"]["devices"][0]
    assert wanted["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == engine["count"]
    assert set(claimed_nodes(plane, namespace)) == {node for nodes in nodes_in_use(plane, namespace).values() for node in nodes}
    await leave_nothing(plane, "changed", namespace)


async def test_users_labels_reach_the_replica_and_no_pod(plane: ControlPlane, namespace: str) -> None:
    document = a_model("labelled", namespace, an_engine("main", H100))
    await plane.apply(document)
    await plane.ready("ModelDeployment", "labelled", namespace)
    running = pods(plane, namespace)
    document["spec"]["template"]["metadata"] = {"labels": {"team": "search"}}
    await rolled(plane, document)

    async def team() -> str:
        found: str = (await the_replica(plane, "labelled", namespace))["metadata"]["labels"].get("team", "")
        return found

    await eventually(team, lambda found: found == "search")
    assert pods(plane, namespace) == running
    await leave_nothing(plane, "labelled", namespace)


async def test_wkl_103_a_selector_that_does_not_compile_leaves_what_serves_alone(plane: ControlPlane, namespace: str) -> None:
    document = a_model("kept", namespace, an_engine("main", H100))
    await plane.apply(document)
    before = await plane.ready("ModelDeployment", "kept", namespace)
    running = pods(plane, namespace)
    broken = a_model("kept", namespace, an_engine("main", H100))
    broken["spec"]["template"]["spec"]["engines"][0]["members"][0]["nodeSelector"]["devices"][0]["selectors"] = [{"cel": "device.("}]
    await plane.apply(broken)
    seen = await plane.until("ModelDeployment", "kept", lambda seen: reason(seen, "ReplicasScheduled") == "InvalidNodeSelector", namespace)
    assert [each["endpoint"] for each in seen["status"]["placements"]] == [each["endpoint"] for each in before["status"]["placements"]]
    assert pods(plane, namespace) == running
    await rolled(plane, document)
    assert pods(plane, namespace) == running
    await leave_nothing(plane, "kept", namespace)


async def test_engines_that_change_their_parts_do_not_serve_until_all_have_changed(plane: ControlPlane, namespace: str) -> None:
    def shape(*phases: str) -> Json:
        engines = [an_engine(name, pool) for name, pool in zip("ab", (L40S, H100), strict=True)]
        for engine, phase in zip(engines, phases, strict=True):
            engine.update({"phase": phase} if phase else {})
        return a_model("shaped", namespace, *engines, mode="PrefillDecode" if all(phases) else "Unified")

    async with routed_by_pools(plane):
        await plane.apply(shape("", ""))
        before = await plane.ready("ModelDeployment", "shaped", namespace)
        async with watching(plane, "shaped", namespace) as watched:
            after = await rolled(plane, shape("Prefill", "Decode"))
        assert watched.endpoints_fewest == 0
        assert [each["endpoint"] for each in after["status"]["placements"]] == [each["endpoint"] for each in before["status"]["placements"]]
        replica = await the_replica(plane, "shaped", namespace)
        assert (replica["status"]["routing"]["connector"], replica["status"]["routing"]["enginePort"]) == ("nixlv2", 8001)
        await leave_nothing(plane, "shaped", namespace)


async def test_flags_for_the_picker_reach_it_without_a_new_generation(plane: ControlPlane, namespace: str) -> None:
    document = a_model("flagged", namespace, an_engine("main", H100))
    async with routed_by_pools(plane):
        await plane.apply(document)
        await plane.ready("ModelDeployment", "flagged", namespace)
        running = await the_replica(plane, "flagged", namespace)
        document["metadata"]["annotations"] = {labels.PICKER_FLAGS: "v=5"}
        await plane.apply(document)

        async def flags() -> list[str]:
            path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{running['status']['workloadName']}-epp"
            found: list[str] = plane.get(CLUSTER, path)["spec"]["template"]["spec"]["containers"][0]["args"]
            return found

        await eventually(flags, lambda found: "--v=5" in found)
        seen = await plane.ready("ModelDeployment", "flagged", namespace)
        assert seen["metadata"]["generation"] == 1
        await leave_nothing(plane, "flagged", namespace)


async def test_wkl_79_a_cluster_without_connection_info_keeps_what_runs_there(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(a_model("kept", namespace, an_engine("main", H100)))
    before = await plane.ready("ModelDeployment", "kept", namespace)
    running = pods(plane, namespace)
    replica = plane.handle("ModelReplica", (await the_replica(plane, "kept", namespace))["metadata"]["name"], namespace)
    view = await connection_of(plane)
    await replica.signal(
        "cluster_changed", {**view, "sequence": (sequence := sequence_ahead()), "connected": False, "connection": None, "facts": None}
    )

    async def accepted() -> str:
        return reason(await the_replica(plane, "kept", namespace), "ModelAccepted")

    await eventually(accepted, lambda found: found == "WaitingForCluster")
    assert pods(plane, namespace) == running
    assert (await the_replica(plane, "kept", namespace))["status"]["inventory"]
    await replica.signal("cluster_changed", {**view, "sequence": sequence + 1})
    after = await plane.ready("ModelDeployment", "kept", namespace)
    assert [each["replica"] for each in after["status"]["placements"]] == [each["replica"] for each in before["status"]["placements"]]
    assert pods(plane, namespace) == running
    await leave_nothing(plane, "kept", namespace)


async def test_wkl_114_a_replica_of_a_deleted_cluster_ends_and_lists_what_it_left_behind(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(a_model("lost", namespace, an_engine("main", H100)))
    await plane.ready("ModelDeployment", "lost", namespace)
    name = (await the_replica(plane, "lost", namespace))["metadata"]["name"]
    view = await connection_of(plane)
    await plane.handle("ModelReplica", name, namespace).signal("cluster_changed", {**view, "sequence": sequence_ahead(), "present": False})
    await plane.delete("ModelDeployment", "lost", namespace)
    await plane.gone("ModelDeployment", "lost", namespace)
    left = await plane.handle("ModelReplica", name, namespace).query("describe")
    assert "Abandoned" in {event["reason"] for event in left["status"]["events"]}
    assert {item["kind"] for item in left["status"]["leftBehind"]} >= {"Deployment", "HTTPRoute", "ResourceClaimTemplate"}
    # The cluster is there all the same, so the test cleans up as an administrator would.
    plane.call(CLUSTER, "DELETE", f"/api/v1/namespaces/{namespace}")

    async def remaining() -> list[Json]:
        return plane.pods(CLUSTER, namespace)

    await eventually(remaining, lambda found: not found)
