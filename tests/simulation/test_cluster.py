"""The work of controllers in a simulated cluster, and the view of its clients."""

import asyncio
from typing import Any

import pytest

from activities.cluster_objects.cluster_api import (
    Event,
    GroupVersionKind,
    ObjectId,
    Selection,
    WatchExpired,
)
from activities.cluster_objects.kinds import LEADER_WORKER_SET, POD
from api_types.errors import ClusterUnreachable, CredentialsInvalid, StackMissing
from api_types.labels import MANAGED_BY, MANAGED_BY_VALUE, OWNER_UID
from tests.simulation.cluster import ApiServer, ClusterClient
from tests.simulation.fields import Json
from tests.simulation.lone_cluster import (
    NAMESPACE,
    a_deployment,
    a_gang,
    a_template,
    an_object,
    living,
    names,
    ready_pods,
)
from tests.simulation.store import ObjectKey

LONG = 3600.0
DEPLOYMENT = ObjectId(GroupVersionKind("apps/v1", "Deployment"), NAMESPACE, "engine")
GANG = ObjectId(LEADER_WORKER_SET, NAMESPACE, "gang")
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def status(server: ApiServer, target: ObjectId) -> Json:
    found = server.store.get(ObjectKey.of(target))
    assert found is not None
    return dict(found["status"])


class Counts:
    """The most and the fewest pods that there were of a kind, over time."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.most, self.ready_least = 0, 1_000
        server.store.listeners.append(self._look)

    def _look(self, change: Any) -> None:
        if change.key.kind == "Pod":
            self.most = max(self.most, len(names(self.server, "Pod")))
            self.ready_least = min(self.ready_least, len(ready_pods(self.server)))


def test_a_deployment_with_ready_pods_reports_them() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        await client.apply(a_deployment(2))
        await asyncio.sleep(LONG)
        seen = status(server, DEPLOYMENT)
        assert (seen["observedGeneration"], seen["readyReplicas"]) == (1, 2)
        assert len(ready_pods(server)) == len(names(server, "Pod")) == 2

    living(story)


def test_a_workload_that_was_scaled_by_hand_is_named_until_it_is_scaled_back() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        deployment = a_deployment(1)
        marks = {"labels": {MANAGED_BY: MANAGED_BY_VALUE}, "annotations": {OWNER_UID: "r1"}}
        deployment["metadata"] |= marks
        await client.apply(deployment)
        assert list(server.owners_of_scaled()) == []
        server.scale_up(ObjectKey.of(DEPLOYMENT))
        server.scale_up(ObjectKey.of(DEPLOYMENT))
        assert list(server.owners_of_scaled()) == list(server.owners_of_scaled()) == ["r1"]
        await client.apply(deployment)
        assert [list(server.owners_of_scaled()) for _ in range(2)] == [["r1"], []]

    living(story)


def test_pods_wait_where_no_node_has_devices_left_and_start_when_one_has() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        await client.apply(a_deployment(3))
        await asyncio.sleep(LONG)
        assert len(ready_pods(server)) == 2
        waiting = [pod for pod in server.store.all_of("Pod") if not pod["spec"].get("nodeName")]
        (condition,) = waiting[0]["status"]["conditions"]
        assert (condition["reason"], len(waiting)) == ("Unschedulable", 1)
        server.set_nodes("gpu", 3, devices=1)
        await asyncio.sleep(LONG)
        assert len(ready_pods(server)) == 3

    living(story, nodes=2)


def test_a_rolling_update_never_has_more_pods_nor_fewer_ready_ones_than_its_strategy_allows() -> (
    None
):
    async def story(server: ApiServer, client: ClusterClient) -> None:
        await client.apply(a_deployment(3, strategy=ROLLING))
        await asyncio.sleep(LONG)
        counts = Counts(server)
        await client.apply(a_deployment(3, image="engine:2", strategy=ROLLING))
        await asyncio.sleep(LONG)
        images = {pod["spec"]["containers"][0]["image"] for pod in server.store.all_of("Pod")}
        assert (images, len(ready_pods(server))) == ({"engine:2"}, 3)
        assert (counts.most, counts.ready_least) == (3, 2)

    living(story)


def test_recreate_has_no_pod_of_the_next_template_before_the_last_one_is_gone() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        await client.apply(a_deployment(2))
        await asyncio.sleep(LONG)
        together: list[int] = []

        def look(_: Any) -> None:
            pods = server.store.all_of("Pod")
            together.append(len({pod["spec"]["containers"][0]["image"] for pod in pods}))

        server.store.listeners.append(look)
        await client.apply(a_deployment(2, image="engine:2"))
        await asyncio.sleep(LONG)
        assert (max(together), len(ready_pods(server))) == (1, 2)

    living(story)


def test_a_foreground_deletion_ends_with_the_owner_after_its_pods() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        await client.apply(a_deployment(2))
        await asyncio.sleep(LONG)
        gone: list[str] = []
        server.store.listeners.append(
            lambda change: gone.append(change.key.kind) if change.after is None else None
        )
        await client.delete(DEPLOYMENT, propagation="Foreground")
        await asyncio.sleep(LONG)
        owners = [kind for kind in gone if kind in ("Pod", "ReplicaSet", "Deployment")]
        assert owners == ["Pod", "Pod", "ReplicaSet", "Deployment"]

    living(story)


def test_a_second_deletion_in_the_foreground_ends_too() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        await client.apply(a_deployment(1))
        await asyncio.sleep(LONG)
        (pod,) = server.store.all_of("Pod")
        name = ObjectId.of(pod)
        await client.delete(name, propagation="Background")
        await client.delete(name, propagation="Foreground", grace_seconds=0)
        await asyncio.sleep(LONG)
        assert pod["metadata"]["name"] not in names(server, "Pod")

    living(story)


@pytest.mark.parametrize(("propagation", "left"), [("Background", 0), ("Orphan", 2)])
def test_the_propagation_policy_decides_which_objects_remain(propagation: Any, left: int) -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        await client.apply(a_deployment(2))
        await asyncio.sleep(LONG)
        await client.delete(DEPLOYMENT, propagation=propagation)
        await asyncio.sleep(LONG)
        assert (names(server, "Deployment"), len(names(server, "Pod"))) == ([], left)

    living(story)


def test_a_gang_is_recreated_as_a_whole_when_one_of_its_pods_ends() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        server.serve(LEADER_WORKER_SET)
        await client.apply(a_gang(1, 3))
        await asyncio.sleep(LONG)
        assert ready_pods(server) == ["gang-0", "gang-0-1", "gang-0-2"]
        before = {pod["metadata"]["uid"] for pod in server.store.all_of("Pod")}
        await client.delete(ObjectId(POD, NAMESPACE, "gang-0-2"))
        await asyncio.sleep(LONG)
        after = {pod["metadata"]["uid"] for pod in server.store.all_of("Pod")}
        assert (len(after), before & after) == (3, set())
        assert status(server, GANG)["readyReplicas"] == 1

    living(story)


def test_a_claim_stays_while_a_pod_mounts_it() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        server.create(an_object("storage.k8s.io/v1", "StorageClass", "rwx", namespace=""))
        spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "rwx"}
        await client.apply(an_object("v1", "PersistentVolumeClaim", "weights", spec=spec))
        volume = {"name": "weights", "persistentVolumeClaim": {"claimName": "weights"}}
        pod = a_template(volumes=[volume])["spec"]
        server.create(an_object("v1", "Pod", "user", spec=pod, status={"conditions": []}))
        await asyncio.sleep(LONG)
        assert ready_pods(server) == ["user"]
        claim = ObjectId(GroupVersionKind("v1", "PersistentVolumeClaim"), NAMESPACE, "weights")
        await client.delete(claim)
        await asyncio.sleep(LONG)
        assert names(server, "PersistentVolumeClaim") == ["weights"]
        await client.delete(ObjectId(POD, NAMESPACE, "user"))
        await asyncio.sleep(LONG)
        assert names(server, "PersistentVolumeClaim") == names(server, "PersistentVolume") == []

    living(story)


def test_a_pod_of_a_lost_node_stays_until_the_node_is_back_or_gone() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        await client.apply(a_deployment(1))
        await asyncio.sleep(LONG)
        (pod,) = server.store.all_of("Pod")
        server.set_node_ready(pod["spec"]["nodeName"], ready=False)
        await asyncio.sleep(LONG)
        held = server.store.get(ObjectKey("", "Pod", NAMESPACE, pod["metadata"]["name"]))
        assert held is not None
        assert "deletionTimestamp" in held["metadata"]
        assert len(ready_pods(server)) == 1
        server.remove_node(pod["spec"]["nodeName"])
        # The auditors excuse a pool whose pods were placed before it shrank.
        assert server.shrunk == {pod["spec"]["nodeName"].rpartition("-")[0]}
        await asyncio.sleep(LONG)
        assert pod["metadata"]["name"] not in names(server, "Pod")

    living(story)


def test_the_endpoints_of_a_service_are_its_ready_pods_and_carry_its_labels() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        spec = {"selector": {"app": "engine"}, "ports": [{"port": 80, "targetPort": 8000}]}
        service = an_object("v1", "Service", "engine", spec=spec)
        service["metadata"]["labels"] = {"team": "ml"}
        await client.apply(service)
        await client.apply(a_deployment(2))
        await asyncio.sleep(LONG)
        slices = server.store.find("discovery.k8s.io", "EndpointSlice", NAMESPACE)
        ((marks, ready),) = [
            (
                each["metadata"]["labels"],
                [one["conditions"]["ready"] for one in each["endpoints"]],
            )
            for each in slices
        ]
        assert (marks["team"], marks["kubernetes.io/service-name"]) == ("ml", "engine")
        assert ready == [True, True]

    living(story)


async def events(client: ClusterClient, selection: Selection, seconds: float) -> list[Event]:
    """Watch for a while from the present on."""
    version = (await client.list(selection)).resource_version
    seen: list[Event] = []

    async def follow() -> None:
        async for event in client.watch(selection, version):
            seen.append(event)  # noqa: PERF401 - events before the cancellation count

    task = asyncio.create_task(follow())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return seen


def test_a_watch_of_a_selection_reports_objects_that_leave_it() -> None:
    async def story(_: ApiServer, client: ClusterClient) -> None:
        item = an_object("v1", "ConfigMap", "c")
        item["metadata"]["labels"] = {"a": "1"}
        kind = GroupVersionKind("v1", "ConfigMap")
        watching = asyncio.create_task(events(client, Selection(kind, labels="a=1"), 60.0))
        await asyncio.sleep(10)
        await client.apply(item)
        await asyncio.sleep(10)
        item["metadata"]["labels"] = {"a": "2"}
        await client.apply(item)
        assert [event.type for event in await watching] == ["ADDED", "DELETED"]

    living(story)


def test_a_watch_expires_when_the_server_restarts() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        selection = Selection(POD)
        version = (await client.list(selection)).resource_version
        server.create(an_object("v1", "ConfigMap", "c"))
        server.restart()
        with pytest.raises(WatchExpired):
            await anext(client.watch(selection, version))

    living(story)


def test_a_lost_answer_leaves_its_effect() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        await client.resources()
        server.strikes = lambda name, _: name == "cluster.lost"
        with pytest.raises(ClusterUnreachable):
            await client.create(an_object("v1", "ConfigMap", "c"))
        server.strikes = lambda *_: False
        assert await client.create(an_object("v1", "ConfigMap", "c")) is None

    living(story)


@pytest.mark.parametrize("mood", ["silent", "refuses"])
def test_a_server_that_does_not_answer_is_unreachable(mood: Any) -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        server.mood = mood
        with pytest.raises(ClusterUnreachable):
            await client.version()

    living(story)


def test_a_server_accepts_the_token_that_it_knows() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        server.tokens = {"new"}
        with pytest.raises(CredentialsInvalid):
            await client.version()
        assert await ClusterClient(server, "new").version() == server.version

    living(story)


def test_a_kind_is_served_while_its_definition_is_there() -> None:
    async def story(server: ApiServer, client: ClusterClient) -> None:
        with pytest.raises(StackMissing):
            await client.apply(a_gang(1, 1))
        server.serve(LEADER_WORKER_SET)
        await asyncio.sleep(10)
        await client.apply(a_gang(1, 1))
        name = "leaderworkersets.leaderworkerset.x-k8s.io"
        await client.delete(
            ObjectId(
                GroupVersionKind("apiextensions.k8s.io/v1", "CustomResourceDefinition"), "", name
            )
        )
        await asyncio.sleep(LONG)
        assert names(server, "LeaderWorkerSet") == names(server, "Pod") == []
        assert LEADER_WORKER_SET not in await client.resources(refresh=True)

    living(story)
