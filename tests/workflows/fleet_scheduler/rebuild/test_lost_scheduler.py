"""A scheduler that lost its memory comes back: at any size, with entities that do not answer, with a visibility that leaves some out."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.messaging import querying
from activities.messaging.messages import Survey
from activities.messaging.search_attributes import identity_at_start
from api_types import names
from scheduler.model.reasons import BOUND
from tests.environment.background import in_background
from tests.environment.waiting import TIMEOUT_SECONDS
from tests.workflows.environment import worker_that_stops
from tests.workflows.environment.harness import a_deployment, condition, eventually, reason
from tests.workflows.environment.protocol_fleet import NAMESPACE, ProtocolFleet, nodes_charged, protocol_fleet
from tests.workflows.environment.simulated_fleet import apply_clusters, pool_nodes, simulated_fleet, until_known
from workflows.entity import periods
from workflows.fleet_scheduler.rebuild import activities
from workflows.fleet_scheduler.workflow import FleetSchedulerWorkflow

pytestmark = pytest.mark.testbed("shared")

UNSERVED = "unserved"


class StaleVisibility:
    """Visibility that does not list some entities, whatever is asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *prefixes: str) -> None:
        self.prefixes = prefixes
        monkeypatch.setattr(activities, "list_entities", self._list)

    async def _list(self, client: Client, wanted: Survey) -> querying.Listing:
        listing = await querying.list_entities(client, wanted)
        found = {name: cluster for name, cluster in listing.found.items() if not name.startswith(self.prefixes)}
        return querying.Listing(found, listing.after)


async def decided(fleet: ProtocolFleet, name: str, within: float = TIMEOUT_SECONDS) -> str:
    """Wait until the scheduler has decided about a deployment; gives why it has no place, empty if it has one."""

    async def verdict() -> str | None:
        seen = await fleet.describe(name)
        if not seen or condition(seen, "ReplicasScheduled") == "True":
            return "" if seen else None
        return "InsufficientCapacity" if reason(seen, "ReplicasScheduled") == "InsufficientCapacity" else None

    found: str = await eventually(verdict, lambda seen: seen is not None, within=within, what=f"the decision about {name}")
    return found


async def placed(fleet: ProtocolFleet, name: str) -> None:
    await eventually(
        lambda: fleet.describe(name), lambda seen: bool(seen) and condition(seen, "ReplicasScheduled") == "True", what=f"places of {name}"
    )


async def lose_scheduler(fleet: ProtocolFleet, clusters: int, within: float = 60) -> None:
    """Lose the scheduler, and wait until another knows as many clusters and has read all accounts that it gets."""
    await fleet.terminate_scheduler()
    await until_known(fleet, clusters, within)


async def uids(fleet: ProtocolFleet) -> dict[str, str]:
    ledger = await eventually(lambda: fleet.scheduler("ledger"), lambda seen: seen is not None, what="the ledger")
    return {entry["uid"]: entry["cluster"] for entry in ledger}


async def mute(client: Client, kind: str, ids: Iterable[str], **attributes: Any) -> None:
    """Start entities whose task queue no worker serves."""

    async def one(name: str) -> None:
        namespace = NAMESPACE if kind in ("ModelDeployment", "ModelReplica") else ""
        await client.start_workflow(
            kind,
            None,
            id=names.workflow_id(kind, namespace, name),
            task_queue=UNSERVED,
            **identity_at_start(kind, namespace, name, **attributes),
        )

    await asyncio.gather(*(one(name) for name in ids))


@pytest.mark.parametrize("omitted", ["modelreplica/", "modeldeployment/"])
async def test_w3_one_id_that_visibility_omits_does_not_overcommit_the_only_node(monkeypatch: pytest.MonkeyPatch, omitted: str) -> None:
    async with simulated_fleet(clients=1) as fleet:
        await apply_clusters(fleet, {"only": {"gpus": 1}})
        await fleet.apply(a_deployment("first", NAMESPACE))
        await placed(fleet, "first")
        await eventually(lambda: fleet.running("ModelReplica"), lambda count: count == 1)
        before = await uids(fleet)
        StaleVisibility(monkeypatch, omitted)
        await lose_scheduler(fleet, 1)
        await fleet.apply(a_deployment("rival", NAMESPACE))
        assert await decided(fleet, "rival") == "InsufficientCapacity"
        assert await uids(fleet) == before
        assert nodes_charged(await fleet.scheduler("ledger")) == {("only", "gpus"): 1}
        assert await fleet.scheduler("audit") == []


@pytest.mark.parametrize("terminated", [False, True], ids=["omitted", "terminated"])
async def test_replicas_stay_on_a_cluster_that_visibility_omits_or_whose_workflow_was_terminated(
    monkeypatch: pytest.MonkeyPatch, terminated: bool
) -> None:
    """Only the cluster itself says that it was deleted."""
    async with simulated_fleet(clients=1) as fleet:
        await apply_clusters(fleet, {"only": {"gpus": 1}})
        await fleet.apply(a_deployment("first", NAMESPACE))
        await placed(fleet, "first")
        before = await uids(fleet)
        if terminated:
            await fleet.client.get_workflow_handle(names.workflow_id("InferenceCluster", "", "only")).terminate("lost on purpose")
        else:
            StaleVisibility(monkeypatch, "inferencecluster/")
        await lose_scheduler(fleet, 1)
        await fleet.scale("first", 2, "again")
        refused = "InsufficientCapacity"
        await eventually(lambda: fleet.describe("first"), lambda seen: bool(seen) and reason(seen, "ReplicasScheduled") == refused)
        assert [entry.get("state", BOUND) for entry in await fleet.scheduler("ledger")] == [BOUND]
        assert await uids(fleet) == before


async def test_an_epoch_is_greater_than_every_one_before_even_when_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with simulated_fleet(clients=1) as fleet:
        await apply_clusters(fleet, {"eu": {"gpus": 4}})
        await fleet.apply(a_deployment("first", NAMESPACE))
        await placed(fleet, "first")
        before, epoch = await uids(fleet), (await fleet.scheduler("describe"))["status"]["epoch"]
        present = FleetSchedulerWorkflow._now_ms
        monkeypatch.setattr(FleetSchedulerWorkflow, "_now_ms", lambda self: present(self) - 3_600_000)
        await lose_scheduler(fleet, 1)
        assert (await fleet.scheduler("describe"))["status"]["epoch"] > epoch
        await fleet.scale("first", 2, "more")
        await eventually(lambda: uids(fleet), lambda found: len(found) == 2 and found.items() >= before.items(), what="one more replica")
        await eventually(lambda: fleet.running("ModelReplica"), lambda count: count == 2)


async def test_a_deployment_that_has_seen_a_greater_epoch_tells_the_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with simulated_fleet(clients=1) as fleet:
        await apply_clusters(fleet, {"eu": {"gpus": 4}})
        await fleet.apply(a_deployment("first", NAMESPACE))
        await placed(fleet, "first")
        before, epoch = await uids(fleet), (await fleet.scheduler("describe"))["status"]["epoch"]
        present = FleetSchedulerWorkflow._now_ms
        monkeypatch.setattr(FleetSchedulerWorkflow, "_now_ms", lambda self: present(self) - 3_600_000)
        # The only two that have seen the epoch are not asked by the rebuild.
        StaleVisibility(monkeypatch, "modeldeployment/", "inferencecluster/", "inferenceclass/")
        await fleet.terminate_scheduler()
        await eventually(lambda: fleet.scheduler("describe"), lambda seen: bool(seen) and seen["status"]["replicas"] == 1)
        assert (await fleet.scheduler("describe"))["status"]["epoch"] < epoch
        await fleet.scale("first", 2, "more")
        await eventually(
            lambda: fleet.scheduler("describe"), lambda seen: bool(seen) and seen["status"]["epoch"] > epoch, what="a greater epoch"
        )
        await until_known(fleet, 1)
        await eventually(lambda: uids(fleet), lambda found: len(found) == 2 and found.items() >= before.items(), what="one more replica")
        await eventually(lambda: fleet.running("ModelReplica"), lambda count: count == 2)


@pytest.mark.long
async def test_w3_hundreds_of_entities_that_do_not_answer_delay_nobody_else() -> None:
    async with simulated_fleet(clients=1) as fleet:
        await apply_clusters(fleet, {"eu": {"gpus": 8}, "us": {"gpus": 8}})
        await fleet.submit([a_deployment(f"d{number}", NAMESPACE) for number in range(4)])
        for number in range(4):
            await placed(fleet, f"d{number}")
        before = await uids(fleet)
        await mute(fleet.client, "ModelReplica", (f"mute-{number}" for number in range(380)), cluster="us", deployment="mute")
        await mute(fleet.client, "InferenceCluster", (f"mute-{number}" for number in range(20)))
        await mute(fleet.client, "ModelDeployment", (f"mute-{number}" for number in range(20)))

        async def all_listed() -> bool:
            return await fleet.running("ModelReplica") >= 384 and await fleet.running("InferenceCluster") == 22

        await eventually(all_listed, bool, what="all in visibility")
        # An attempt to read them ends after 90 s. Then the scheduler continues without the silent entities.
        await lose_scheduler(fleet, 2, within=90)
        await fleet.apply(a_deployment("fresh", NAMESPACE, replicas=2))
        await placed(fleet, "fresh")
        after = await uids(fleet)
        assert after.items() >= before.items()
        assert {cluster for uid, cluster in after.items() if uid not in before} == {"eu"}

        async def silent() -> set[str]:
            seen = await fleet.scheduler("describe")
            return set(seen["status"]["silent"]) if seen else set()

        # On a busy machine others are late too, and answer in the end.
        mutes = {f"modelreplica/{NAMESPACE}/mute-{number}" for number in range(380)}
        mutes |= {f"{kind}/mute-{number}" for kind in ("inferencecluster", f"modeldeployment/{NAMESPACE}") for number in range(20)}
        await eventually(silent, partial(eq, mutes), what="all that never answer, and no others, are named")


async def events(client: Client) -> int:
    description = await client.get_workflow_handle(names.FLEET_SCHEDULER_ID).describe()
    return description.history_length


@pytest.mark.long
async def test_one_entity_that_does_not_answer_costs_nothing_at_rest_and_delays_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activities, "_RETRY_SECONDS", (1.0, 2.0))
    async with simulated_fleet(clients=1) as fleet:
        await apply_clusters(fleet, {"eu": {"gpus": 8}})
        await mute(fleet.client, "ModelReplica", ["mute"], cluster="other", deployment="mute")
        await eventually(lambda: fleet.running("ModelReplica"), lambda count: count == 1)
        await lose_scheduler(fleet, 1)
        assert (await fleet.scheduler("describe"))["status"]["silent"] == [f"modelreplica/{NAMESPACE}/mute"]
        await asyncio.sleep(2)
        before = await events(fleet.client)
        await asyncio.sleep(20)
        # Ten rounds of queries and more passed.
        assert await events(fleet.client) == before
        await fleet.apply(a_deployment("fresh", NAMESPACE))
        await placed(fleet, "fresh")
        # When it is gone, nothing is missing any more.
        await fleet.client.get_workflow_handle(f"modelreplica/{NAMESPACE}/mute").terminate()
        await eventually(lambda: fleet.scheduler("waiting"), lambda waiting: waiting == [], what="nothing that is waited for")


class Ledger:
    """Samples the ledger all the time and collects pools with more replicas than nodes."""

    def __init__(self, fleet: ProtocolFleet, nodes: int) -> None:
        self._fleet = fleet
        self._nodes = nodes
        self.overcommitted: list[str] = []
        self.samples = 0

    async def watch(self) -> None:
        while True:
            ledger = await self._fleet.scheduler("ledger")
            for place, count in nodes_charged(ledger or []).items():
                if count > self._nodes:
                    self.overcommitted.append(f"{place}: {count} of {self._nodes} nodes")
            self.samples += 1
            await asyncio.sleep(0.1)


@asynccontextmanager
async def watched(fleet: ProtocolFleet, nodes: int) -> AsyncIterator[Ledger]:
    ledger = Ledger(fleet, nodes)
    async with in_background(ledger.watch()):
        yield ledger


@pytest.mark.parametrize("pause", [0.15, 0.4, 0.75])
async def test_w3_ten_deployments_omitted_in_a_burst_overcommit_no_pool(monkeypatch: pytest.MonkeyPatch, pause: float) -> None:
    count, nodes = 30, 3
    racers = [f"racer-{number}" for number in range(count)]
    # An entity that the rebuild did not reach announces itself with its reports, which it repeats every hour.
    monkeypatch.setattr(periods, "RESYNC", timedelta(seconds=10))
    async with simulated_fleet(clients=4) as fleet:
        await apply_clusters(fleet, many(5, 2, nodes))
        StaleVisibility(monkeypatch, *(f"modeldeployment/{NAMESPACE}/racer-{number}" for number in range(10, 20)))
        async with watched(fleet, nodes) as ledger:
            submitted = asyncio.create_task(fleet.submit([a_deployment(name, NAMESPACE) for name in racers]))
            await asyncio.sleep(pause)
            await fleet.terminate_scheduler()
            await submitted
            for name in racers:
                await placed(fleet, name)
            await eventually(lambda: uids(fleet), lambda found: len(found) == count, what="a ledger with every replica once")
        assert ledger.overcommitted == []
        assert ledger.samples > 10
        assert await fleet.scheduler("audit") == []
        owners = Counter(entry["deployment"] for entry in await fleet.scheduler("ledger"))
        assert owners == dict.fromkeys(racers, 1)


@pytest.mark.parametrize("point", [worker_that_stops.BEFORE, worker_that_stops.AFTER])
async def test_w4_a_worker_that_is_killed_after_the_decision_answers_it_later_and_places_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: str
) -> None:
    mark = tmp_path / "stopped"
    monkeypatch.setenv(worker_that_stops.POINT, f"{point}:{mark}")
    async with simulated_fleet(clients=1, apart=tmp_path, module=worker_that_stops.__name__) as fleet:
        await apply_clusters(fleet, {"only": {"gpus": 1}})
        await fleet.submit([a_deployment("first", NAMESPACE), a_deployment("second", NAMESPACE)])

        async def stopped() -> bool:
            return mark.exists()

        await eventually(stopped, bool, what="the end of the worker")
        await fleet.restart_workers()
        # The batch of answers that was lost with its worker is sent again when its heartbeats are missing for 30 s, and not only when
        # its attempt has used up its time.
        verdicts = await asyncio.gather(*(decided(fleet, name, within=50) for name in ("first", "second")))
        assert sorted(verdicts) == ["", "InsufficientCapacity"]
        assert await fleet.scheduler("audit") == []
        assert nodes_charged(await fleet.scheduler("ledger")) == {("only", "gpus"): 1}
        await eventually(lambda: fleet.running("ModelReplica"), lambda count: count == 1)


@pytest.mark.long
async def test_clusters_whose_accounts_are_more_than_a_payload_are_read() -> None:
    # As many bytes as 400 clusters of eight pools with two devices each, which no rebuild could read at once. They are not connected: what
    # they publish of their pools is in their accounts all the same.
    async with protocol_fleet(clients=1) as fleet:
        clusters = many(100, 8, 4)
        await apply_clusters(fleet, clusters, devices=8, wait_for=["cluster-000", "cluster-099"])
        await until_known(fleet, len(clusters))
        await lose_scheduler(fleet, len(clusters), within=120)
        assert (await describe_status(fleet))["silent"] == []
        assert await pool_nodes(fleet, "cluster-099") == 32


async def test_a_rebuild_goes_on_in_the_next_run_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 24
    monkeypatch.setattr(activities, "QUERIED_AT_ONCE", 2)
    async with simulated_fleet(clients=1, events=60) as fleet:
        await apply_clusters(fleet, {"eu": {"gpus": 2 * count}})
        await fleet.submit([a_deployment(f"d{number}", NAMESPACE) for number in range(count)])
        await eventually(lambda: uids(fleet), lambda found: len(found) == count, what="every replica placed")
        await eventually(lambda: fleet.running("ModelReplica"), lambda found: found == count)
        before = await uids(fleet)
        await fleet.terminate_scheduler()
        rebuilding: set[str] = set()

        async def complete() -> bool:
            description = await fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID).describe()
            status = await describe_status(fleet)
            if status.get("rebuilding", True):
                rebuilding.add(description.run_id)
            return not status.get("rebuilding", True) and status["replicas"] == count

        await eventually(complete, bool, what="the end of the rebuild", longest_pause=0.1)
        assert len(rebuilding) > 1
        assert await uids(fleet) == before


def many(count: int, pools: int, nodes: int) -> dict[str, dict[str, int]]:
    return {f"cluster-{number:03}": {f"pool-{pool}": nodes for pool in range(pools)} for number in range(count)}


async def describe_status(fleet: ProtocolFleet) -> dict[str, Any]:
    seen = await fleet.scheduler("describe")
    return dict(seen["status"]) if seen else {}
