"""Lives of deployments: placed, scaled, rolled, drained, lost and deleted.

Only real pods and controllers show the rest: tests/workflows/test_end_to_end.py and
tests/workflows/model_deployment/test_rollouts.py.
"""

from dataclasses import dataclass, field

import pytest

from api_types import labels, names
from tests.simulation.lives.steady_fleet import SteadyFleet, a_cluster, in_virtual_time
from tests.workflows.environment.harness import (
    Json,
    a_deployment,
    condition,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.topologies import (
    H100,
    L40S,
    a_gang,
    a_model,
    a_pair,
    an_engine,
    claimed_nodes,
    connection_of,
    leave_nothing,
    nodes_in_use,
    pools_of,
    rolled,
    routed_by_pools,
    the_replica,
    watching,
    with_image,
)

HERE = "prod-eu"
FIRST, SECOND, THIRD = (f"registry.example/engine:{number}" for number in (1, 2, 3))


def placements(seen: Json) -> list[Json]:
    """Return the placements of a deployment."""
    found: list[Json] = seen.get("status", {}).get("placements", [])
    return found


def replicas_of(seen: Json) -> list[str]:
    """Name the replicas of a deployment."""
    return [each["replica"] for each in placements(seen)]


def endpoint(seen: Json) -> str:
    """Return the endpoint of the only replica."""
    (placement,) = placements(seen)
    found: str = placement["endpoint"]
    return found


def pods(plane: SteadyFleet, namespace: str) -> dict[str, str]:
    """Return the images of engines by the uid of the pod."""
    found = plane.pods(HERE, namespace)
    return {pod["metadata"]["uid"]: pod["spec"]["containers"][0]["image"] for pod in found}


async def only_images(plane: SteadyFleet, namespace: str, image: str) -> None:
    """Wait until no pod has another image; the last old one may still be ending."""

    async def images() -> set[str]:
        return {
            container["image"]
            for cluster in plane.running.clusters
            for pod in plane.pods(cluster, namespace)
            for container in pod["spec"]["containers"]
            if container["name"] == "engine"
        }

    await eventually(images, lambda found: found == {image})


# Placement and scale


@in_virtual_time
async def test_more_gpus_than_any_node_has_are_refused_with_reasons_before_anything_is_applied(
    plane: SteadyFleet, namespace: str
) -> None:
    await plane.apply(a_deployment("giant", namespace, gpus=64))
    seen = await plane.until(
        "ModelDeployment",
        "giant",
        lambda seen: reason(seen, "ReplicasScheduled") == "InsufficientCapacity",
        namespace,
    )
    said = message(seen, "ReplicasScheduled")
    assert said.startswith("0 of 1 replicas scheduled (checked 2 clusters)")
    assert "0/2 clusters are available: 2 had no pool for engine main" in said
    assert [plane.our_objects(cluster, namespace) for cluster in plane.running.clusters] == [[], []]
    await leave_nothing(plane, "giant", namespace)


@in_virtual_time
async def test_a_scale_signal_adds_and_removes_whole_replicas_down_to_none(
    plane: SteadyFleet, namespace: str
) -> None:
    await plane.apply(a_deployment("elastic", namespace))
    before = await plane.ready("ModelDeployment", "elastic", namespace)
    await plane.scale("elastic", namespace, 3)
    grown = await plane.until(
        "ModelDeployment",
        "elastic",
        lambda seen: seen["status"]["replicas"]["ready"] == 3,
        namespace,
    )
    assert set(replicas_of(before)) <= set(replicas_of(grown))
    assert grown["status"]["lastScale"]["replicas"] == 3
    await plane.scale("elastic", namespace, 0)
    empty = await plane.until(
        "ModelDeployment", "elastic", lambda seen: not placements(seen), namespace
    )
    assert reason(empty, "ReplicasScheduled") == "ScaledToZero"
    assert [plane.our_objects(cluster, namespace) for cluster in plane.running.clusters] == [[], []]
    await leave_nothing(plane, "elastic", namespace)


@in_virtual_time
async def test_replicas_that_withdraw_at_once_are_all_answered_by_a_directory_that_starts_a_new_run(
    plane: SteadyFleet, namespace: str
) -> None:
    await plane.apply(a_deployment("many", namespace, replicas=6))
    await plane.ready("ModelDeployment", "many", namespace)
    plane.world.server.events_max = 20
    await plane.scale("many", namespace, 0)
    await plane.until("ModelDeployment", "many", lambda seen: not placements(seen), namespace)
    await leave_nothing(plane, "many", namespace)


@in_virtual_time
async def test_applying_the_same_manifest_again_does_not_undo_a_scale(
    plane: SteadyFleet, namespace: str
) -> None:
    document = a_deployment("kept", namespace)
    await plane.apply(document)
    await plane.ready("ModelDeployment", "kept", namespace)
    await plane.scale("kept", namespace, 2)
    await plane.until(
        "ModelDeployment", "kept", lambda seen: seen["spec"]["replicas"] == 2, namespace
    )
    request = await plane.apply(document)
    seen = await plane.until(
        "ModelDeployment", "kept", lambda seen: request in seen["appliedRequestIds"], namespace
    )
    assert (seen["spec"]["replicas"], seen["metadata"]["generation"]) == (2, 2)
    await leave_nothing(plane, "kept", namespace)


@in_virtual_time
async def test_two_namespaces_with_equal_names_do_not_touch_each_other(
    plane: SteadyFleet, namespace: str
) -> None:
    other = f"{namespace}-other"
    async with routed_by_pools(plane):
        for tenant in (namespace, other):
            await plane.apply(a_pair(tenant, prefills=1, decodes=1))
        for tenant in (namespace, other):
            await plane.ready("ModelDeployment", "pair", tenant)
        async with watching(plane, "pair", other) as watched:
            await leave_nothing(plane, "pair", namespace)
        assert watched.endpoints_fewest == 1
        still = await plane.describe("ModelDeployment", "pair", other)
        assert condition(still, "Ready") == "True"
        await leave_nothing(plane, "pair", other)


@in_virtual_time
async def test_a_no_execute_taint_moves_replicas_to_another_cluster(
    plane: SteadyFleet, namespace: str
) -> None:
    await plane.apply(a_deployment("moved", namespace))
    before = await plane.ready("ModelDeployment", "moved", namespace)
    (cluster,) = (each["cluster"] for each in placements(before))
    taints = [{"key": labels.MAINTENANCE, "effect": "NoExecute"}]
    await plane.apply(a_cluster(cluster, taints=taints))
    (other,) = set(plane.running.clusters) - {cluster}
    await plane.until(
        "ModelDeployment",
        "moved",
        lambda seen: (
            [(each["cluster"], each["ready"]) for each in placements(seen)] == [(other, True)]
        ),
        namespace,
    )
    assert plane.our_objects(cluster, namespace) == []
    await leave_nothing(plane, "moved", namespace)


# Lost workflows


def without_times(entry: Json) -> Json:
    """Return an entry of the ledger without the fields that change by themselves."""
    return {
        name: value for name, value in entry.items() if name not in ("since", "ready", "serving")
    }


@in_virtual_time
async def test_a_scheduler_that_lost_its_state_places_nothing_twice(
    plane: SteadyFleet, namespace: str
) -> None:
    await plane.apply(a_deployment("safe", namespace, replicas=3))
    before = await plane.ready("ModelDeployment", "safe", namespace)
    ledger = {entry["uid"]: without_times(entry) for entry in await plane.scheduler("ledger")}
    await plane.client.get_workflow_handle(names.FLEET_SCHEDULER_ID).terminate("lost on purpose")
    await plane.apply(a_deployment("later", namespace))
    await plane.ready("ModelDeployment", "later", namespace)
    after = await plane.describe("ModelDeployment", "safe", namespace)
    assert placements(after) == placements(before)
    known = {entry["uid"]: without_times(entry) for entry in await plane.scheduler("ledger")}
    assert len(ledger) == 3
    assert ledger.items() <= known.items()
    assert await plane.scheduler("audit") == []
    for name in ("later", "safe"):
        await plane.delete("ModelDeployment", name, namespace)
        await plane.gone("ModelDeployment", name, namespace)


@in_virtual_time
async def test_a_deployment_that_was_terminated_takes_its_replicas_back(
    plane: SteadyFleet, namespace: str
) -> None:
    async def uids(seen: Json) -> dict[str, str]:
        found = [
            await plane.describe("ModelReplica", name, namespace) for name in replicas_of(seen)
        ]
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}

    document = a_deployment("adopting", namespace, replicas=2)
    await plane.apply(document)
    before = await uids(await plane.ready("ModelDeployment", "adopting", namespace))
    await plane.handle("ModelDeployment", "adopting", namespace).terminate("an accident")
    await plane.apply(document)
    after = await uids(await plane.ready("ModelDeployment", "adopting", namespace))
    assert (len(after), after) == (2, before)
    await leave_nothing(plane, "adopting", namespace)


# Rollouts


def counts(seen: Json) -> tuple[int, int]:
    """Return how many replicas are Ready with the present template, and how many there are."""
    rollout = seen["status"]["rollout"]
    return rollout["updatedReady"], rollout["total"]


@in_virtual_time
async def test_a_new_image_reaches_one_replica_at_a_time_and_a_newer_one_takes_over(
    plane: SteadyFleet, namespace: str
) -> None:
    document = a_model("rolled", namespace, an_engine("main", L40S), replicas=3)
    await plane.apply(document)
    before = await plane.ready("ModelDeployment", "rolled", namespace)
    async with watching(plane, "rolled", namespace) as watched:
        await plane.apply(with_image(document, SECOND))
        await plane.until(
            "ModelDeployment",
            "rolled",
            lambda seen: seen["metadata"]["generation"] == 2 and counts(seen)[0] >= 1,
            namespace,
        )
        after = await rolled(plane, with_image(document, THIRD))
    assert watched.endpoints_fewest == 2
    assert watched.nodes_most["l40s"] <= 4
    await only_images(plane, namespace, THIRD)
    assert replicas_of(after) == replicas_of(before)
    assert after["status"]["rollout"]["revisions"] == [1, 2]
    await leave_nothing(plane, "rolled", namespace)


async def midway(plane: SteadyFleet, namespace: str) -> Json:
    """Pause a rollout of three replicas once it has begun; return the manifest before it."""
    document = a_model("midway", namespace, an_engine("main", L40S), replicas=3)
    await plane.apply(document)
    await plane.ready("ModelDeployment", "midway", namespace)
    await plane.apply(with_image(document, SECOND))
    await plane.until(
        "ModelDeployment",
        "midway",
        lambda seen: (
            seen["metadata"]["generation"] == 2 and seen["status"]["rollout"]["updated"] == 1
        ),
        namespace,
    )
    held = with_image(document, SECOND)
    held["spec"]["rollout"] = {"paused": True}
    await plane.apply(held)
    stopped = await plane.until(
        "ModelDeployment",
        "midway",
        lambda seen: seen["status"]["replicas"]["ready"] == 3 and counts(seen)[0] >= 1,
        namespace,
    )
    assert stopped["status"]["rollout"]["updated"] < 3
    assert condition(stopped, "Ready") == "False"
    return document


@in_virtual_time
async def test_a_rollout_that_is_paused_midway_stays_midway(
    plane: SteadyFleet, namespace: str
) -> None:
    document = await midway(plane, namespace)
    await plane.apply(with_image(document, SECOND))
    await plane.ready("ModelDeployment", "midway", namespace)
    await only_images(plane, namespace, SECOND)
    await leave_nothing(plane, "midway", namespace)


@in_virtual_time
async def test_an_undo_midway_is_done_when_the_changed_replicas_have_changed_back(
    plane: SteadyFleet, namespace: str
) -> None:
    document = await midway(plane, namespace)
    await plane.apply(document)
    done = await plane.until(
        "ModelDeployment", "midway", lambda seen: counts(seen) == (3, 3), namespace
    )
    assert condition(done, "Ready") == "True"
    await only_images(plane, namespace, FIRST)
    await leave_nothing(plane, "midway", namespace)


@dataclass(frozen=True)
class Change:
    """An edit of the engines of one replica, and the state of the cluster afterwards."""

    story: str
    before: list[Json]
    after: list[Json]
    workload: str = "Deployment"
    nodes: dict[str, int] = field(default_factory=lambda: {"h100": 1})
    replaced: bool = False


CHANGES = [
    Change(
        "copies",
        [an_engine("main", H100)],
        [an_engine("main", H100, copies=2)],
        nodes={"h100": 2},
    ),
    Change(
        "the size of a gang",
        [a_gang(nodes=1)],
        [a_gang(nodes=2)],
        "LeaderWorkerSet",
        {"h100": 3},
    ),
    Change(
        "one pod becomes a gang",
        [an_engine("main", H100)],
        [a_gang(nodes=1)],
        "LeaderWorkerSet",
        {"h100": 2},
        replaced=True,
    ),
    Change(
        "an engine is renamed",
        [an_engine("main", H100)],
        [an_engine("other", H100)],
        replaced=True,
    ),
    Change(
        "another pool",
        [an_engine("main", H100)],
        [an_engine("main", L40S)],
        nodes={"l40s": 1},
        replaced=True,
    ),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.story)
@in_virtual_time
async def test_a_changed_engine_is_rolled_out_as_its_row_states(
    plane: SteadyFleet, namespace: str, change: Change
) -> None:
    await plane.apply(a_model("changed", namespace, *change.before))
    await plane.ready("ModelDeployment", "changed", namespace)
    uid = (await the_replica(plane, "changed", namespace))["metadata"]["uid"]
    async with watching(plane, "changed", namespace) as watched:
        await rolled(plane, a_model("changed", namespace, *change.after))
    replica = await the_replica(plane, "changed", namespace)
    assert (replica["metadata"]["uid"] != uid) is change.replaced

    async def nodes() -> dict[str, int]:
        return {pool: len(held) for pool, held in nodes_in_use(plane, namespace).items()}

    await eventually(nodes, lambda found: found == change.nodes)
    assert frozenset({"Deployment", "LeaderWorkerSet"}) not in watched.together
    assert frozenset({change.workload}) in watched.together
    await leave_nothing(plane, "changed", namespace)


@in_virtual_time
async def test_labels_of_users_reach_the_replica_and_no_pod(
    plane: SteadyFleet, namespace: str
) -> None:
    document = a_model("labelled", namespace, an_engine("main", H100))
    await plane.apply(document)
    await plane.ready("ModelDeployment", "labelled", namespace)
    running = pods(plane, namespace)
    document["spec"]["template"]["metadata"] = {"labels": {"team": "search"}}
    await rolled(plane, document)

    async def team() -> str:
        replica = await the_replica(plane, "labelled", namespace)
        found: str = replica["metadata"]["labels"].get("team", "")
        return found

    await eventually(team, lambda found: found == "search")
    assert pods(plane, namespace) == running
    await leave_nothing(plane, "labelled", namespace)


@in_virtual_time
async def test_a_selector_that_does_not_compile_leaves_the_serving_pods_alone(
    plane: SteadyFleet, namespace: str
) -> None:
    document = a_model("kept", namespace, an_engine("main", H100))
    await plane.apply(document)
    before = await plane.ready("ModelDeployment", "kept", namespace)
    running = pods(plane, namespace)
    broken = a_model("kept", namespace, an_engine("main", H100))
    (member,) = broken["spec"]["template"]["spec"]["engines"][0]["members"]
    member["nodeSelector"]["devices"][0]["selectors"] = [{"cel": "device.("}]
    await plane.apply(broken)
    seen = await plane.until(
        "ModelDeployment",
        "kept",
        lambda seen: reason(seen, "ReplicasScheduled") == "InvalidNodeSelector",
        namespace,
    )
    assert endpoint(seen) == endpoint(before)
    assert pods(plane, namespace) == running
    await rolled(plane, document)
    assert pods(plane, namespace) == running
    await leave_nothing(plane, "kept", namespace)


@in_virtual_time
async def test_engines_that_change_their_parts_do_not_serve_until_all_have_changed(
    plane: SteadyFleet, namespace: str
) -> None:
    def shape(*phases: str) -> Json:
        engines = [an_engine(name, pool) for name, pool in zip("ab", (L40S, H100), strict=True)]
        for engine, phase in zip(engines, phases, strict=True):
            engine.update({"phase": phase} if phase else {})
        mode = "PrefillDecode" if all(phases) else "Unified"
        return a_model("shaped", namespace, *engines, mode=mode)

    async with routed_by_pools(plane):
        await plane.apply(shape("", ""))
        before = await plane.ready("ModelDeployment", "shaped", namespace)
        async with watching(plane, "shaped", namespace) as watched:
            after = await rolled(plane, shape("Prefill", "Decode"))
        assert watched.endpoints_fewest == 0
        assert endpoint(after) == endpoint(before)
        routing = (await the_replica(plane, "shaped", namespace))["status"]["routing"]
        assert (routing["connector"], routing["enginePort"]) == ("nixlv2", 8001)
        await leave_nothing(plane, "shaped", namespace)


@in_virtual_time
async def test_flags_for_the_picker_reach_it_without_a_new_generation(
    plane: SteadyFleet, namespace: str
) -> None:
    document = a_model("flagged", namespace, an_engine("main", H100))
    async with routed_by_pools(plane):
        await plane.apply(document)
        await plane.ready("ModelDeployment", "flagged", namespace)
        name = (await the_replica(plane, "flagged", namespace))["status"]["workloadName"]
        document["metadata"]["annotations"] = {labels.PICKER_FLAGS: "v=5"}
        await plane.apply(document)

        async def flags() -> list[str]:
            path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}-epp"
            (container,) = plane.get(HERE, path)["spec"]["template"]["spec"]["containers"]
            found: list[str] = container["args"]
            return found

        await eventually(flags, lambda found: "--v=5" in found)
        seen = await plane.ready("ModelDeployment", "flagged", namespace)
        assert seen["metadata"]["generation"] == 1
        await leave_nothing(plane, "flagged", namespace)


# Topologies


@in_virtual_time
async def test_two_engines_are_ready_where_the_scheduler_placed_them_and_roll_without_another_node(
    plane: SteadyFleet, namespace: str
) -> None:
    document = a_model("model", namespace, an_engine("one", H100), an_engine("two", L40S, copies=2))
    nodes = {"h100": 1, "l40s": 2}
    async with routed_by_pools(plane):
        await plane.apply(document)
        seen = await plane.ready("ModelDeployment", "model", namespace)
        replica = await the_replica(plane, "model", namespace)
        assert set(pools_of(replica).values()) == set(nodes)
        held = nodes_in_use(plane, namespace)
        assert {pool: len(found) for pool, found in held.items()} == nodes
        assert set(claimed_nodes(plane, namespace)) == set().union(*held.values())
        assert endpoint(seen) == replica["status"]["routing"]["url"] != ""
        assert replica["status"]["routing"]["surface"] == "pool"
        assert {engine["phase"] for engine in replica["status"]["engines"]} == {"Ready"}
        async with watching(plane, "model", namespace) as watched:
            after = await rolled(plane, with_image(document, SECOND))
        await only_images(plane, namespace, SECOND)
        assert max(watched.nodes_most.values()) <= 4
        assert endpoint(after) == endpoint(seen)
        await leave_nothing(plane, "model", namespace)


async def until_phase(plane: SteadyFleet, namespace: str, wanted: str) -> None:
    """Wait for a phase of the only replica of the deployment `pair`."""

    async def phase() -> str:
        found: str = (await the_replica(plane, "pair", namespace))["status"]["phase"]
        return found

    await eventually(phase, lambda found: found == wanted, what=wanted)


@in_virtual_time
async def test_a_pair_that_loses_one_of_three_prefill_nodes_stays_in_service_and_takes_a_free_one(
    plane: SteadyFleet, namespace: str
) -> None:
    async with routed_by_pools(plane):
        await plane.apply(a_pair(namespace))
        await plane.ready("ModelDeployment", "pair", namespace)
        lost = max(nodes_in_use(plane, namespace)["l40s"])
        async with watching(plane, "pair", namespace) as watched:
            plane.server(HERE).remove_node(lost)
            await until_phase(plane, namespace, "Degraded")
            await until_phase(plane, namespace, "Ready")
        assert lost not in nodes_in_use(plane, namespace)["l40s"]
        assert watched.endpoints_fewest == 1
        await leave_nothing(plane, "pair", namespace)


@in_virtual_time
async def test_a_pair_without_prefill_is_out_of_service_until_it_has_one_again(
    plane: SteadyFleet, namespace: str
) -> None:
    async with routed_by_pools(plane):
        await plane.apply(a_pair(namespace, prefills=1, decodes=1))
        before = await plane.ready("ModelDeployment", "pair", namespace)
        plane.server(HERE).remove_node(max(nodes_in_use(plane, namespace)["l40s"]))
        await plane.until("ModelDeployment", "pair", lambda seen: not endpoint(seen), namespace)
        after = await plane.ready("ModelDeployment", "pair", namespace)
        assert endpoint(after) == endpoint(before)
        await leave_nothing(plane, "pair", namespace)


# Drift


@in_virtual_time
async def test_a_workload_that_is_deleted_by_hand_is_applied_again(
    plane: SteadyFleet, namespace: str
) -> None:
    await plane.apply(a_deployment("steady", namespace))
    seen = await plane.ready("ModelDeployment", "steady", namespace)
    (placement,) = placements(seen)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    (workload,) = plane.get(placement["cluster"], path)["items"]
    name = workload["metadata"]["name"]
    plane.call(placement["cluster"], "DELETE", f"{path}/{name}")

    async def there() -> bool:
        return plane.get(placement["cluster"], f"{path}/{name}") is not None

    await eventually(there, bool, within=30)
    await plane.ready("ModelDeployment", "steady", namespace)
    replica = await plane.describe("ModelReplica", placement["replica"], namespace)
    events = {event["reason"]: event["message"] for event in replica["status"]["events"]}
    drift = f"Deployment/{name} is missing"
    assert (drift in events["DriftDetected"], drift in events["DriftRepaired"]) == (True, True)
    await leave_nothing(plane, "steady", namespace)


# Clusters


@in_virtual_time
async def test_a_cluster_without_connection_info_keeps_its_running_pods(
    plane: SteadyFleet, namespace: str
) -> None:
    await plane.apply(a_model("kept", namespace, an_engine("main", H100)))
    before = await plane.ready("ModelDeployment", "kept", namespace)
    running = pods(plane, namespace)
    view = await connection_of(plane)
    replica = plane.handle("ModelReplica", replicas_of(before)[0], namespace)
    lost = {"connected": False, "connection": None, "facts": None}
    newer = view["sequence"] + 1_000_000
    await replica.signal("cluster_changed", {**view, "sequence": newer, **lost})

    async def accepted() -> str:
        return reason(await the_replica(plane, "kept", namespace), "ModelAccepted")

    await eventually(accepted, lambda found: found == "WaitingForCluster")
    assert pods(plane, namespace) == running
    assert (await the_replica(plane, "kept", namespace))["status"]["inventory"]
    await replica.signal("cluster_changed", {**view, "sequence": newer + 1})
    after = await plane.ready("ModelDeployment", "kept", namespace)
    assert replicas_of(after) == replicas_of(before)
    assert pods(plane, namespace) == running
    await leave_nothing(plane, "kept", namespace)


@in_virtual_time
async def test_a_rotated_secret_restarts_replicas_one_by_one_where_the_worker_is_set_so(
    plane: SteadyFleet, namespace: str
) -> None:
    parts = plane.world.parts
    restarting = parts.settings.secrets.model_copy(update={"restart_on_rotation": True})
    parts.settings = parts.settings.model_copy(update={"secrets": restarting})
    plane.put_secret(namespace, "hub", {"token": "one"})
    plane.kill_workers()
    document = a_model("gated", namespace, an_engine("main", L40S), replicas=3)
    (member,) = document["spec"]["template"]["spec"]["engines"][0]["members"]
    source = {"secretKeyRef": {"name": "hub", "key": "token"}}
    (container,) = member["template"]["spec"]["containers"]
    container["env"] = [{"name": "HF_TOKEN", "valueFrom": source}]
    await plane.apply(document)
    await plane.ready("ModelDeployment", "gated", namespace)
    before = pods(plane, namespace)

    def is_done(seen: Json) -> bool:
        rollout = seen["status"]["rollout"]
        is_updated = rollout["updatedReady"] == 3 and "pending" not in rollout
        return bool(rollout.get("adoption")) and is_updated

    async with watching(plane, "gated", namespace) as watched:
        plane.put_secret(namespace, "hub", {"token": "two"})
        await plane.until("ModelDeployment", "gated", is_done, namespace)
    assert watched.endpoints_fewest == 2
    assert pods(plane, namespace).keys().isdisjoint(before)
    await leave_nothing(plane, "gated", namespace)
