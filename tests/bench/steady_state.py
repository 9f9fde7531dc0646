"""Measure the cost of many running replicas while nothing changes.

Prints one JSON line. One testbed cluster has a node for every replica, and the worker
runs as a process of its own, as users run it. First all replicas are created, which is
timed. When the histories have stopped growing, the worker is observed for some minutes:
its processor time in cores, its memory, and the events that each workflow's history
gains. The load average is printed too: a busy machine makes times longer, but hardly
changes processor time and events.
"""

import argparse
import asyncio
import base64
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run by its path; the tests are not an installed package
    sys.path.insert(0, str(Path(__file__).parents[2]))

import yaml
from temporalio.client import Client

from activities.messaging.search_attributes import identity_at_start
from activities.secrets.selection import secret_store
from activities.secrets.store import StoredSecret
from api_types import names, queues
from api_types.messages.entities import SetSpec
from api_types.sections.clusters import SecretSettings
from api_types.settings import Settings
from testbed.fleet.fleet_file import FleetFile
from testbed.running import Running
from testbed.testbed import Testbed
from tests.bench.one_line import one_line
from tests.workflows.environment.harness import (
    Json,
    WorkerProcess,
    a_deployment,
    a_worker,
    connected,
)

CLUSTER = "steady"
NAMESPACE = "ml-team"
POLL_SECONDS = 1.0
TIMEOUT_SECONDS = 3600.0
# Histories that did not grow for this time count as at rest.
REST_SECONDS = 20.0
SAMPLE_SECONDS = 10.0
# Limits: the cores that an idle worker may use, and the events that a history may gain.
TARGETS = {"cores": 0.5, "events_per_workflow": 0.0}

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MIB = 1 << 20

Histories = dict[str, tuple[str, int]]
"""Run id and number of events of each running workflow."""


def a_fleet(replicas: int) -> FleetFile:
    """One cluster with a node for every replica, since a replica takes a whole one."""
    device = {
        "name": "gpu",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": 1,
    }
    cluster = {
        "name": CLUSTER,
        "pools": [{"name": "small", "class": "one-gpu", "nodes": replicas}],
    }
    return FleetFile.model_validate(
        {"classes": {"one-gpu": {"devices": [device]}}, "clusters": [cluster]}
    )


def note(what: str) -> None:
    """Report progress on standard error, because the run takes many minutes."""
    sys.stderr.write(
        f"{time.strftime('%H:%M:%S')} {what}, load {os.getloadavg()[0]:.1f}\n"
    )


async def until(check: Callable[[], Awaitable[bool]], what: str) -> float:
    """Poll until it holds; return the seconds that it took.

    Raises TimeoutError after `TIMEOUT_SECONDS` seconds.
    """
    started = time.perf_counter()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not await check():  # noqa: ASYNC110 - what is checked is in another process
            await asyncio.sleep(POLL_SECONDS)
    seconds = time.perf_counter() - started
    note(f"{what} after {seconds:.1f} s")
    return seconds


async def apply(client: Client, document: Json) -> None:
    """Apply as every client does: one signal that also starts."""
    kind, name = document["kind"], document["metadata"]["name"]
    namespace = document["metadata"].get("namespace", "")
    await client.start_workflow(
        kind,
        None,
        id=names.workflow_id(kind, namespace, name),
        task_queue=queues.WORKFLOWS,
        **identity_at_start(kind, namespace, name),
        start_signal="set_spec",
        start_signal_args=[
            SetSpec(request_id=f"apply/{name}", by="bench", manifest=document).wire()
        ],
    )


async def ready(client: Client, kind: str) -> int:
    """Count the Ready objects of a kind in visibility."""
    query = f'ExecutionStatus = "Running" AND WorkflowType = "{kind}" AND ModelplaneReady = "True"'
    return (await client.count_workflows(query)).count


async def connect_cluster(client: Client, running: Running, secrets: Path) -> None:
    """Register the cluster and wait until it is Ready."""
    store = secret_store(Settings(secrets=SecretSettings(directory=secrets)))
    for document in _documents(running.manifests / "secrets.yaml"):
        data = {key: base64.b64decode(value) for key, value in document["data"].items()}
        await store.put(
            StoredSecret(
                document["metadata"]["namespace"], document["metadata"]["name"], data
            )
        )
    for file in ("classes.yaml", "clusters.yaml"):
        for document in _documents(running.manifests / file):
            await apply(client, document)

    async def is_ready() -> bool:
        return await ready(client, "InferenceCluster") == 1

    await until(is_ready, "cluster Ready")


async def make(client: Client, deployments: int, replicas: int) -> float:
    """Apply all deployments at once; return the seconds until every replica is Ready."""
    started = time.perf_counter()
    await asyncio.gather(
        *(
            apply(client, a_deployment(f"steady-{i:03}", NAMESPACE, replicas=replicas))
            for i in range(deployments)
        )
    )
    shown = -1

    async def all_ready() -> bool:
        nonlocal shown
        count = await ready(client, "ModelReplica")
        if count // 50 != shown:
            shown = count // 50
            note(f"{count} replicas Ready")
        return count >= deployments * replicas

    await until(all_ready, "all replicas Ready")
    return time.perf_counter() - started


async def histories(client: Client) -> Histories:
    """Read the length of every running workflow's history; no worker is queried."""
    gate = asyncio.Semaphore(16)

    async def read(workflow_id: str) -> tuple[str, tuple[str, int]]:
        async with gate:
            seen = await client.get_workflow_handle(workflow_id).describe()
        return workflow_id, (seen.run_id, seen.history_length)

    ids = [row.id async for row in client.list_workflows('ExecutionStatus = "Running"')]
    return dict(await asyncio.gather(*(read(workflow_id) for workflow_id in ids)))


def growth(before: Histories, after: Histories) -> dict[str, int]:
    """Return the events that each workflow gained; a continued run counts from its
    beginning.
    """
    gained = {}
    for workflow_id, (run, length) in after.items():
        old_run, old_length = before.get(workflow_id, ("", 0))
        if events := length - (old_length if run == old_run else 0):
            gained[workflow_id] = events
    return gained


async def at_rest(client: Client) -> float:
    """Wait until no history grows any more; return the seconds."""
    last: Histories = {}

    async def rests() -> bool:
        nonlocal last
        now = await histories(client)
        gained = growth(last, now)
        last = now
        if gained:
            await asyncio.sleep(REST_SECONDS)
        return not gained

    return await until(rests, "histories at rest")


@dataclass(frozen=True)
class Usage:
    """Resources of a process: seconds of processor time so far, and bytes of memory
    now.
    """

    seconds: float
    memory: int

    @classmethod
    def of(cls, pid: int) -> "Usage":
        """Read it from the kernel."""
        # The second field is the program's name in brackets, which may contain spaces
        # and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return cls(
            (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND,
            int(fields[21]) * _PAGE_BYTES,
        )


async def watch(
    client: Client, worker: WorkerProcess, minutes: float
) -> dict[str, Any]:
    """Observe an idle worker."""
    before, first, started = (
        await histories(client),
        Usage.of(worker.pid),
        time.perf_counter(),
    )
    peak_cores, last, last_at = 0.0, first, started
    while time.perf_counter() - started < minutes * 60:
        await asyncio.sleep(min(SAMPLE_SECONDS, minutes * 60))
        now, now_at = Usage.of(worker.pid), time.perf_counter()
        peak_cores = max(peak_cores, (now.seconds - last.seconds) / (now_at - last_at))
        last, last_at = now, now_at
    gained = growth(before, await histories(client))
    by_kind: Counter[str] = Counter()
    for workflow_id, events in gained.items():
        by_kind[workflow_id.partition("/")[0]] += events
    return {
        "minutes": round((last_at - started) / 60, 2),
        "workflows": len(before),
        "cores": round((last.seconds - first.seconds) / (last_at - started), 4),
        "cores_peak_10s": round(peak_cores, 4),
        "memory_start_mib": round(first.memory / _MIB, 1),
        "memory_end_mib": round(last.memory / _MIB, 1),
        "events": sum(gained.values()),
        "events_per_workflow": round(sum(gained.values()) / max(1, len(before)), 4),
        "events_by_kind": dict(by_kind),
        "grown": dict(sorted(gained.items(), key=lambda item: -item[1])[:5]),
    }


async def measure(chosen: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Create the replicas and observe them."""
    testbed = Testbed(
        home / "testbed", a_fleet(chosen.deployments * chosen.replicas), note
    )
    try:
        running = await asyncio.to_thread(testbed.up)
        with a_worker(
            running.temporal_address, home / "secrets", home / "worker.log"
        ) as worker:
            async with connected(running) as client:
                await connect_cluster(client, running, home / "secrets")
                made = await make(client, chosen.deployments, chosen.replicas)
                making = Usage.of(worker.pid)
                rest = await at_rest(client)
                seen = await watch(client, worker, chosen.minutes)
                return {
                    "all_ready_s": round(made, 1),
                    "all_ready_worker_cpu_s": round(making.seconds, 1),
                    "at_rest_s": round(rest, 1),
                    **seen,
                    "still_ready": await ready(client, "ModelReplica"),
                }
    finally:
        await asyncio.to_thread(testbed.down)


def _documents(file: Path) -> list[Json]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deployments", type=int, default=50)
    parser.add_argument("--replicas", type=int, default=10, help="of each deployment")
    parser.add_argument("--minutes", type=float, default=10.0)
    chosen = parser.parse_args(arguments)
    with one_line() as say:
        with tempfile.TemporaryDirectory(prefix="modelplane-steady-") as folder:
            figures = asyncio.run(measure(chosen, Path(folder)))
        whole = figures["still_ready"] >= chosen.deployments * chosen.replicas
        met = whole and all(figures[name] <= target for name, target in TARGETS.items())
        say({**vars(chosen), **figures, "targets": TARGETS, "met": met})


if __name__ == "__main__":
    main(sys.argv[1:])
