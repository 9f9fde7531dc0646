"""A scheduler that lost its state recovers, on a real Temporal server.

Real parts show the timeouts of a killed worker and of unanswered queries, and new runs
during a rebuild. The simulation and the unit tests in this folder cover visibility
omissions, clock steps and lost schedulers.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.messaging.search_attributes import identity_at_start
from api_types import names
from tests.environment.waiting import TIMEOUT_SECONDS
from tests.workflows.environment import worker_that_stops
from tests.workflows.environment.harness import (
    a_deployment,
    condition,
    eventually,
    reason,
)
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    nodes_charged,
)
from tests.workflows.environment.simulated_fleet import (
    apply_clusters,
    simulated_fleet,
    until_known,
)
from workflows.fleet_scheduler.rebuild import activities

pytestmark = pytest.mark.testbed("shared")

UNSERVED = "unserved"


async def decided(
    fleet: ProtocolFleet, name: str, within: float = TIMEOUT_SECONDS
) -> str:
    """Wait for a decision about a deployment; return the reason why it has no place, or ""."""

    async def verdict() -> str | None:
        seen = await fleet.describe(name)
        if not seen or condition(seen, "ReplicasScheduled") == "True":
            return "" if seen else None
        return (
            "InsufficientCapacity"
            if reason(seen, "ReplicasScheduled") == "InsufficientCapacity"
            else None
        )

    found: str = await eventually(
        verdict,
        lambda seen: seen is not None,
        within=within,
        what=f"the decision about {name}",
    )
    return found


async def placed(fleet: ProtocolFleet, name: str) -> None:
    await eventually(
        lambda: fleet.describe(name),
        lambda seen: bool(seen) and condition(seen, "ReplicasScheduled") == "True",
        what=f"places of {name}",
    )


async def lose_scheduler(
    fleet: ProtocolFleet, clusters: int, within: float = 60
) -> None:
    """Terminate the scheduler, and wait until the next one knows this number of
    clusters and has read all available accounts.
    """
    await fleet.terminate_scheduler()
    await until_known(fleet, clusters, within)


async def uids(fleet: ProtocolFleet) -> dict[str, str]:
    ledger = await eventually(
        lambda: fleet.scheduler("ledger"),
        lambda seen: seen is not None,
        what="the ledger",
    )
    return {entry["uid"]: entry["cluster"] for entry in ledger}


async def mute(
    client: Client, kind: str, ids: Iterable[str], **attributes: Any
) -> None:
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


@pytest.mark.soak
async def test_hundreds_of_silent_entities_do_not_delay_the_others() -> None:
    async with simulated_fleet(clients=1) as fleet:
        await apply_clusters(fleet, {"eu": {"gpus": 8}, "us": {"gpus": 8}})
        await fleet.submit(
            [a_deployment(f"d{number}", NAMESPACE) for number in range(4)]
        )
        for number in range(4):
            await placed(fleet, f"d{number}")
        before = await uids(fleet)
        await mute(
            fleet.client,
            "ModelReplica",
            (f"mute-{number}" for number in range(380)),
            cluster="us",
            deployment="mute",
        )
        await mute(
            fleet.client, "InferenceCluster", (f"mute-{number}" for number in range(20))
        )
        await mute(
            fleet.client, "ModelDeployment", (f"mute-{number}" for number in range(20))
        )

        async def all_listed() -> bool:
            return (
                await fleet.running("ModelReplica") >= 384
                and await fleet.running("InferenceCluster") == 22
            )

        await eventually(all_listed, bool, what="all in visibility")
        # An attempt to read them ends after 90 s. Then the scheduler continues without
        # the silent entities.
        await lose_scheduler(fleet, 2, within=90)
        await fleet.apply(a_deployment("fresh", NAMESPACE, replicas=2))
        await placed(fleet, "fresh")
        after = await uids(fleet)
        assert after.items() >= before.items()
        assert {cluster for uid, cluster in after.items() if uid not in before} == {
            "eu"
        }

        async def silent() -> set[str]:
            seen = await fleet.scheduler("describe")
            return set(seen["status"]["silent"]) if seen else set()

        # On a busy machine, other entities are late too, and answer in the end.
        mutes = {f"modelreplica/{NAMESPACE}/mute-{number}" for number in range(380)}
        mutes |= {
            f"{kind}/mute-{number}"
            for kind in ("inferencecluster", f"modeldeployment/{NAMESPACE}")
            for number in range(20)
        }
        await eventually(
            silent,
            partial(eq, mutes),
            what="all that never answer, and no others, are named",
        )


async def events(client: Client) -> int:
    description = await client.get_workflow_handle(names.FLEET_SCHEDULER_ID).describe()
    return description.history_length


@pytest.mark.soak
async def test_a_silent_entity_costs_nothing_at_rest_and_delays_no_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(activities, "_RETRY_SECONDS", (1.0, 2.0))
    async with simulated_fleet(clients=1) as fleet:
        await apply_clusters(fleet, {"eu": {"gpus": 8}})
        await mute(
            fleet.client, "ModelReplica", ["mute"], cluster="other", deployment="mute"
        )
        await eventually(
            lambda: fleet.running("ModelReplica"), lambda count: count == 1
        )
        await lose_scheduler(fleet, 1)
        assert (await fleet.scheduler("describe"))["status"]["silent"] == [
            f"modelreplica/{NAMESPACE}/mute"
        ]
        await asyncio.sleep(2)
        before = await events(fleet.client)
        await asyncio.sleep(20)
        # At least ten rounds of queries have passed.
        assert await events(fleet.client) == before
        await fleet.apply(a_deployment("fresh", NAMESPACE))
        await placed(fleet, "fresh")
        # When that entity is gone, nothing is missing any more.
        await fleet.client.get_workflow_handle(
            f"modelreplica/{NAMESPACE}/mute"
        ).terminate()
        await eventually(
            lambda: fleet.scheduler("waiting"),
            lambda waiting: waiting == [],
            what="nothing that is waited for",
        )


async def test_answers_lost_with_a_killed_worker_are_sent_after_missed_heartbeats(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark = tmp_path / "stopped"
    monkeypatch.setenv(worker_that_stops.MARK, str(mark))
    async with simulated_fleet(
        clients=1, apart=tmp_path, module=worker_that_stops.__name__
    ) as fleet:
        await apply_clusters(fleet, {"only": {"gpus": 1}})
        await fleet.submit(
            [a_deployment("first", NAMESPACE), a_deployment("second", NAMESPACE)]
        )

        async def stopped() -> bool:
            return mark.exists()

        await eventually(stopped, bool, what="the end of the worker")
        await fleet.restart_workers()
        # The batch of answers that was lost with its worker is sent again after 30 s
        # without heartbeats, and not only when its attempt times out.
        verdicts = await asyncio.gather(
            *(decided(fleet, name, within=50) for name in ("first", "second"))
        )
        assert sorted(verdicts) == ["", "InsufficientCapacity"]
        assert await fleet.scheduler("audit") == []
        assert nodes_charged(await fleet.scheduler("ledger")) == {("only", "gpus"): 1}
        await eventually(
            lambda: fleet.running("ModelReplica"), lambda count: count == 1
        )


async def test_a_rebuild_continues_in_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 8
    monkeypatch.setattr(activities, "QUERIED_AT_ONCE", 1)
    async with simulated_fleet(clients=1, events=60) as fleet:
        await apply_clusters(fleet, {"eu": {"gpus": 2 * count}})
        await fleet.submit(
            [a_deployment(f"d{number}", NAMESPACE) for number in range(count)]
        )
        await eventually(
            lambda: uids(fleet),
            lambda found: len(found) == count,
            what="every replica placed",
        )
        await eventually(
            lambda: fleet.running("ModelReplica"), lambda found: found == count
        )
        before = await uids(fleet)
        await fleet.terminate_scheduler()
        rebuilding: set[str] = set()

        async def complete() -> bool:
            description = await fleet.client.get_workflow_handle(
                names.FLEET_SCHEDULER_ID
            ).describe()
            status = await describe_status(fleet)
            if status.get("rebuilding", True):
                rebuilding.add(description.run_id)
            return not status.get("rebuilding", True) and status["replicas"] == count

        await eventually(
            complete, bool, what="the end of the rebuild", longest_pause=0.1
        )
        assert len(rebuilding) > 1
        assert await uids(fleet) == before


async def describe_status(fleet: ProtocolFleet) -> dict[str, Any]:
    seen = await fleet.scheduler("describe")
    return dict(seen["status"]) if seen else {}
