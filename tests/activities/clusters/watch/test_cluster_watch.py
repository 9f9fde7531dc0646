"""The watch on a real API server: owners get each change once, and nothing else."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import Json
from activities.clusters.activities import ClusterActivities
from activities.clusters.watch import cluster_watch
from activities.watching import health
from api_types.errors import TransientError
from api_types.messages.cluster_work import ApplyReplica, WatchCluster
from api_types.messages.observations import ObservedCluster, ObservedReplica
from tests.activities.environment import operator
from tests.activities.environment.cluster_under_test import (
    ClusterUnderTest,
    RecordingClient,
    cluster_from,
    eventually,
    target,
)
from tests.activities.environment.tcp_proxy import TcpProxy
from tests.activities.render.builders import a_gang, a_member, an_engine
from tests.environment.effort import effort_below
from tests.environment.waiting import TIMEOUT_SECONDS

pytestmark = pytest.mark.testbed

PROMPT = {"testbed.modelplane.ai/ready-after": "100ms"}
SLOW = {"testbed.modelplane.ai/ready-after": "4s"}


async def test_the_observation_after_an_apply_names_the_same_objects_with_the_same_digests(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    async with cluster.watching() as client:
        applied = await cluster.apply(order)
        observed = await _until(
            client, order, lambda seen: len(seen.objects) == len(applied.inventory)
        )
        assert {found.id: found.digest for found in observed.objects} == {
            entry.id: entry.digest for entry in applied.inventory
        }
        assert client.of(_id(order))[-1].owner_uid == order.uid


async def test_a_replica_is_observed_until_it_serves(cluster: ClusterUnderTest) -> None:
    order = cluster.order([an_engine("main", a_member(annotations=PROMPT), copies=2)])
    async with cluster.watching() as client:
        applied = await cluster.apply(order)
        # The controllers of EndpointSlices and of Deployments are independent, so
        # either change can be observed first.
        observed = await _until(
            client,
            order,
            lambda seen: (
                seen.endpoints_ready == 2
                and seen.workloads[0].available == 2
                and all(route.accepted for route in seen.routes)
            ),
        )
        (workload,) = observed.workloads
        assert workload.current
        assert (
            workload.desired,
            workload.updated,
            workload.ready,
            workload.available,
            workload.total,
        ) == (2, 2, 2, 2, 2)
        assert (workload.pods_ready, workload.blocker) == (2, "")
        assert workload.hashes == [applied.engines[0].template_hash]
        assert {(route.name, route.accepted) for route in observed.routes} == {
            (target(applied, key).name, True)
            for key in ("model-route", "model-route-by-host")
        }
        # Histories have a budget: only a few signals from creation to Ready.
        assert len(client.of(_id(order))) <= 6


async def test_a_gang_is_current_when_all_its_pods_carry_its_hashes(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([a_gang(leader={"annotations": PROMPT}, worker={"nodes": 1})])
    async with cluster.watching() as client:
        applied = await cluster.apply(order)
        observed = await _until(
            client,
            order,
            lambda seen: bool(seen.workloads) and seen.workloads[0].available == 1,
        )
        (workload,) = observed.workloads
        assert (workload.kind, workload.current, workload.pods_ready) == (
            "LeaderWorkerSet",
            True,
            1,
        )
        assert len(workload.hashes) == 2
        assert applied.engines[0].template_hash in workload.hashes


async def test_pods_without_devices_are_observed_with_the_message_of_the_scheduler(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order(
        [
            an_engine(
                "main",
                a_member(
                    requests=[
                        {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 9}
                    ]
                ),
            )
        ]
    )
    async with cluster.watching() as client:
        await cluster.apply(order)
        observed = await _until(
            client,
            order,
            lambda seen: (
                bool(seen.workloads) and "cannot allocate" in seen.workloads[0].blocker
            ),
        )
        assert observed.workloads[0].blocker.startswith(
            "1 of 1 pods unschedulable: 0/9 nodes are available"
        )


async def test_an_object_that_a_user_deleted_is_missing_from_the_next_observation(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    async with cluster.watching() as client:
        applied = await cluster.apply(order)
        service = target(applied, "model-service")
        await _until(
            client, order, lambda seen: len(seen.objects) == len(applied.inventory)
        )
        await operator.delete(cluster, service)
        observed = await _until(
            client,
            order,
            lambda seen: str(service) not in {found.id for found in seen.objects},
        )
        assert len(observed.objects) == len(applied.inventory) - 1


async def test_an_edit_of_our_fields_changes_the_digest_and_other_edits_do_not(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    async with cluster.watching() as client:
        applied = await cluster.apply(order)
        await _until(client, order, _serves)
        route = target(applied, "model-route")
        before = len(client.of(_id(order)))
        await operator.patch(
            cluster,
            route,
            {
                "metadata": {
                    "labels": {"team": "a"},
                    "annotations": {"note": "reviewed"},
                }
            },
        )
        await asyncio.sleep(1.5)
        assert len(client.of(_id(order))) == before
        await operator.patch(cluster, route, {"spec": {"rules": [{}]}})
        known = {entry.id: entry.digest for entry in applied.inventory}
        await _until(
            client,
            order,
            lambda seen: any(found.digest != known[found.id] for found in seen.objects),
        )


async def test_an_owner_without_objects_is_signalled(cluster: ClusterUnderTest) -> None:
    order = cluster.order([an_engine()])
    async with cluster.watching() as client:
        applied = await cluster.apply(order)
        await _until(
            client, order, lambda seen: len(seen.objects) == len(applied.inventory)
        )
        await cluster.tear_down(order, applied)
        await _until(client, order, lambda seen: seen.objects == [])


async def test_an_owner_is_signalled_at_most_once_a_second_and_only_about_changes(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine("main", a_member(annotations=PROMPT), copies=4)])
    async with cluster.watching() as client:
        applied = await cluster.apply(order)
        await _until(client, order, lambda seen: seen.endpoints_ready == 4)
        times = [at for at, name, _ in client.signals if name == _id(order)]
        assert all(later - earlier >= 0.99 for earlier, later in pairwise(times))
        signalled = len(client.signals)
        # The watch of a quiet cluster costs almost nothing.
        with effort_below(15):
            await asyncio.sleep(3)
        assert len(client.signals) == signalled
        digests = [observed.digest for observed in client.of(_id(order))]
        assert all(earlier != later for earlier, later in pairwise(digests))
        assert applied.inventory


async def test_a_watch_after_a_killed_one_signals_every_owner_once_and_misses_nothing(
    cluster: ClusterUnderTest,
) -> None:
    orders = [
        cluster.order([an_engine("main", a_member(annotations=PROMPT))])
        for _ in range(3)
    ]
    async with cluster.watching() as client:
        applied = [await cluster.apply(order) for order in orders]
        for order in orders:
            await _until(client, order, lambda seen: seen.endpoints_ready == 1)
    deployment = target(applied[0], "model-serving-main")
    await operator.patch(cluster, deployment, {"spec": {"replicas": 0}})
    async with cluster.watching() as client:
        await _until(client, orders[0], lambda seen: seen.workloads[0].desired == 0)
        for order, one in zip(orders, applied, strict=True):
            await _until(client, order, lambda seen: bool(seen.objects))
            first = client.of(_id(order))[0].replica
            assert first is not None
            assert len(first.objects) == len(one.inventory), (
                "a partial observation would look like deleted objects"
            )
        assert len(client.of(_id(orders[1]))) == 1


async def test_a_replica_that_lost_all_objects_while_no_watch_ran_is_signalled(
    cluster: ClusterUnderTest,
) -> None:
    lost, kept = cluster.order([an_engine()]), cluster.order([an_engine()])
    await cluster.tear_down(lost, await cluster.apply(lost))
    await cluster.apply(kept)
    client = RecordingClient()
    for order in (lost, kept):
        client.replicas[_id(order)] = {
            "uid": order.uid,
            "namespace": order.namespace,
            "name": order.name,
            "deployment": "d",
            "cluster": "c",
            "index": 0,
        }
    async with cluster.watching(client):
        await _until(client, lost, lambda seen: seen.objects == [])
        assert client.of(_id(lost))[-1].owner_uid == lost.uid
        observed = await _until(client, kept, lambda seen: bool(seen.objects))
        assert len(observed.objects) == 5


async def test_a_watch_ends_at_once_when_its_worker_shuts_down(
    cluster: ClusterUnderTest,
) -> None:
    environment = cluster.environment()
    order = WatchCluster(connection=cluster.connection, cluster_uid="cluster-uid")
    task = asyncio.create_task(
        environment.run(ClusterActivities(cluster.pool).watch_cluster, order)
    )
    await eventually(lambda: cluster.heartbeats)
    environment.worker_shutdown()
    with pytest.raises(
        TransientError, match="the worker shuts down; another one takes over"
    ):
        await asyncio.wait_for(task, TIMEOUT_SECONDS)


async def test_a_cancelled_watch_ends_and_leaves_nothing_running(
    cluster: ClusterUnderTest,
) -> None:
    before = asyncio.all_tasks()
    async with cluster.watching() as client:
        await eventually(lambda: client.signals)
    await eventually(lambda: asyncio.all_tasks() <= before)


async def test_a_workflow_that_does_not_exist_affects_no_other(
    cluster: ClusterUnderTest,
) -> None:
    gone, here = cluster.order([an_engine()]), cluster.order([an_engine()])
    client = RecordingClient()
    client.missing.add(_id(gone))
    async with cluster.watching(client):
        await cluster.apply(gone)
        await cluster.apply(here)
        await _until(client, here, lambda seen: bool(seen.objects))
        assert client.of(_id(gone)) == []


async def test_a_signal_that_temporal_did_not_accept_is_sent_again(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    client = RecordingClient()
    client.down = True
    async with cluster.watching(client):
        await cluster.apply(order)
        await asyncio.sleep(1)
        assert client.signals == []
        client.down = False
        await _until(client, order, lambda seen: bool(seen.objects))


async def test_the_cluster_is_signalled_its_gateway_and_nodes(
    cluster: ClusterUnderTest,
) -> None:
    async with cluster.watching() as client:
        observed = await eventually(lambda: client.cluster(cluster.workflow_id))
        assert observed.reachable
        assert observed.gateway_address == cluster.facts.gateway_address
        assert [
            (found.pool, found.total, found.ready, found.schedulable, found.devices)
            for found in observed.nodes
        ] == [
            ("h100", 4, 4, 4, 32),
            ("l40s", 4, 4, 4, 32),
        ]
        assert client.of(cluster.workflow_id)[-1].owner_uid == "cluster-uid"


async def test_heartbeats_carry_counters_and_nothing_else(
    cluster: ClusterUnderTest,
) -> None:
    async with cluster.watching():
        await eventually(lambda: cluster.heartbeats)
    (beat,) = cluster.heartbeats[-1]
    assert beat
    assert all(isinstance(value, int) for value in beat.values())


async def test_a_kind_that_is_served_later_is_watched_from_then_on(
    cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "_DISCOVERY_SECONDS", 0.5)
    order = cluster.order([an_engine()])
    async with cluster.watching() as client:
        await cluster.apply(order)
        await _until(client, order, lambda seen: bool(seen.objects))
        async with operator.pod_monitors(cluster):
            monitored = order.model_copy(
                update={
                    "facts": cluster.facts.model_copy(
                        update={
                            "apis": [*cluster.facts.apis, "monitoring.coreos.com/v1"]
                        }
                    )
                }
            )
            applied = await cluster.apply(monitored)
            monitor = target(applied, "monitor-engines")
            await _until(
                client,
                order,
                lambda seen: str(monitor) in {found.id for found in seen.objects},
            )
        await _until(
            client,
            order,
            lambda seen: (
                bool(seen.objects)
                and str(monitor) not in {found.id for found in seen.objects}
            ),
        )


async def test_the_storage_classes_of_a_cluster_are_followed(
    cluster: ClusterUnderTest,
) -> None:
    name = f"class-{secrets.token_hex(4)}"
    manifest: Json = {
        "apiVersion": kinds.STORAGE_CLASS.api_version,
        "kind": "StorageClass",
        "metadata": {"name": name},
    }
    manifest["provisioner"] = "example.com/disks"

    def told(client: RecordingClient) -> dict[str, bool]:
        seen = client.cluster(cluster.workflow_id)
        return (seen.facts.storage_classes if seen and seen.facts else None) or {}

    async with cluster.watching() as client:
        made = await operator.make(cluster, manifest)
        await eventually(lambda: told(client).get(name) is False)
        await operator.patch(cluster, made, {"allowVolumeExpansion": True})
        await eventually(lambda: told(client).get(name) is True)
        await operator.delete(cluster, made)
        await eventually(lambda: name not in told(client))


@pytest_asyncio.fixture
async def proxied(
    cluster: ClusterUnderTest, tmp_path: Path
) -> AsyncIterator[tuple[ClusterUnderTest, TcpProxy]]:
    """The same cluster, reached through a proxy that can be closed."""
    kubeconfig = (
        await cluster.store.get(
            cluster.connection.namespace,
            cluster.connection.name,
            cluster.connection.key,
        )
    ).decode()
    server = operator.server_of(kubeconfig)
    async with TcpProxy(server).listening() as proxy:
        through = await cluster_from(
            cluster.name,
            kubeconfig.replace(server, f"https://127.0.0.1:{proxy.port}"),
            tmp_path,
        )
        through.facts = cluster.facts
        yield through, proxy
        await through.pool.close()


@pytest.mark.parametrize(
    "cut",
    [TcpProxy.refuse, TcpProxy.stall],
    ids=["connections refused", "packets lost"],
)
async def test_only_the_cluster_is_signalled_when_the_api_server_is_lost_and_recovers(
    cluster: ClusterUnderTest,
    proxied: tuple[ClusterUnderTest, TcpProxy],
    cut: Callable[[TcpProxy], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "PROBE_SECONDS", 0.3)
    monkeypatch.setattr(health, "RETRY_SECONDS", 0.3)
    through, proxy = proxied
    order = cluster.order([an_engine()])
    applied = await cluster.apply(order)
    async with through.watching() as client:
        await _until(
            client, order, lambda seen: len(seen.objects) == len(applied.inventory)
        )
        await eventually(lambda: client.cluster(cluster.workflow_id))
        await _until(client, order, _serves)
        signalled = len(client.of(_id(order)))
        cut(proxy)
        # Only from here on, because a busy machine may need longer to respond.
        with monkeypatch.context() as impatient:
            impatient.setattr("activities.clients.kubernetes.session.READ_SECONDS", 1.0)
            lost = await eventually(lambda: _cluster(client, cluster, reachable=False))
        assert lost.error_type == "ClusterUnreachable"
        assert "https://127.0.0.1" in lost.error
        await operator.delete(cluster, target(applied, "model-service"))
        await asyncio.sleep(1)
        assert len(client.of(_id(order))) == signalled, (
            "replicas get no signal about an unreachable cluster"
        )
        assert (
            len(
                [
                    found
                    for found in client.of(cluster.workflow_id)
                    if found.cluster and not found.cluster.reachable
                ]
            )
            == 1
        )
        proxy.restore()
        await eventually(lambda: _cluster(client, cluster, reachable=True))
        await _until(
            client, order, lambda seen: len(seen.objects) == len(applied.inventory) - 1
        )


async def test_a_watch_that_starts_while_the_cluster_is_unreachable_reports_it_and_continues_later(
    cluster: ClusterUnderTest,
    proxied: tuple[ClusterUnderTest, TcpProxy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "RETRY_SECONDS", 0.3)
    through, proxy = proxied
    proxy.refuse()
    async with through.watching() as client:
        lost = await eventually(lambda: _cluster(client, cluster, reachable=False))
        assert (lost.gateway_address, lost.gateway_message) == ("", "")
        proxy.restore()
        found = await eventually(lambda: _cluster(client, cluster, reachable=True))
        assert [node.pool for node in found.nodes] == ["h100", "l40s"]


async def test_a_rotated_kubeconfig_is_used_without_a_restart(
    cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(health, "PROBE_SECONDS", 0.3)
    monkeypatch.setattr(health, "RETRY_SECONDS", 0.3)
    kubeconfig = (
        await cluster.store.get(
            cluster.connection.namespace,
            cluster.connection.name,
            cluster.connection.key,
        )
    ).decode()
    other = await cluster_from(cluster.name, kubeconfig, tmp_path)
    other.facts = cluster.facts
    order = cluster.order([an_engine()])
    applied = await cluster.apply(order)
    async with other.watching() as client:
        await _until(
            client, order, lambda seen: len(seen.objects) == len(applied.inventory)
        )
        await operator.replace_kubeconfig(other, operator.without_user(kubeconfig))
        refused = await eventually(lambda: _cluster(client, cluster, reachable=False))
        assert refused.error_type == "CredentialsInvalid"
        await operator.replace_kubeconfig(other, f"{kubeconfig}\n")
        await eventually(lambda: _cluster(client, cluster, reachable=True))
        await operator.delete(cluster, target(applied, "model-service"))
        await _until(
            client, order, lambda seen: len(seen.objects) == len(applied.inventory) - 1
        )
    await other.pool.close()


def _serves(seen: ObservedReplica) -> bool:
    return (
        seen.endpoints_ready == 1
        and [route.accepted for route in seen.routes] == [True, True]
        and seen.workloads[0].available == 1
    )


def _id(order: ApplyReplica) -> str:
    return f"modelreplica/{order.namespace}/{order.name}"


def _cluster(
    client: RecordingClient, cluster: ClusterUnderTest, *, reachable: bool
) -> ObservedCluster | None:
    found = client.cluster(cluster.workflow_id)
    return found if found and found.reachable is reachable else None


async def _until(
    client: RecordingClient,
    order: ApplyReplica,
    holds: Callable[[ObservedReplica], bool],
    within_seconds: float = TIMEOUT_SECONDS,
) -> ObservedReplica:
    def look() -> ObservedReplica | None:
        seen = client.replica(_id(order))
        return seen if seen is not None and holds(seen) else None

    found: ObservedReplica = await eventually(look, within_seconds)
    return found
