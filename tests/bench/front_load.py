"""Measure writes and watches at the front, before a real Temporal server and worker.

Prints one JSON line: 1,000 objects, 50 watchers of all of them, 100 writes a second for
a minute, on loopback. The front, the worker, the server and this program are separate
processes. `p99_ms` of a write counts from its planned start, `watch_p99_ms` from its
answer until a watcher has the event. Each watcher must end with the state of the list.
Afterwards the same requests go to Temporal without the front and without watchers
(`raw_p99_ms`): if that is slow too, the machine is the limit and not the front. `cpu`
is seconds of processor time per write.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

if not __package__:  # run by its path; the tests are not an installed package
    sys.path.insert(0, str(Path(__file__).parents[2]))

import aiohttp

from api_types.messages.entities import Replace
from api_types.resources.kinds import BY_KIND
from api_types.settings import Settings
from fleet_client.errors import CommandFailed
from fleet_client.refs.targets import Target
from fleet_client.requests import new_request_id
from fleet_client.temporal.control_plane import ControlPlane
from tests.bench.one_line import one_line
from tests.bench.temporal_burst import note
from tests.front.load import LABEL, Load, Outcome, create, drive, percentile
from tests.workflows.environment.harness import eventually, free_port
from tests.workflows.environment.protocol_fleet import (
    ProtocolFleet,
    WorkerApart,
    protocol_fleet,
)

TARGETS = {"p99_ms": 250.0, "watchers_behind": 0.0, "failed": 0.0}
ROOT = Path(__file__).parents[2]
_TICKS = os.sysconf("SC_CLK_TCK")
_WITHIN_SECONDS = 60.0
_WARM_SECONDS = 3.0


@asynccontextmanager
async def a_front(address: str, folder: Path) -> AsyncIterator[tuple[str, int]]:
    """Run the front as users do, without limits per user; yield its address and its
    process.
    """
    port = free_port()
    limits = {
        "REQUESTS_PER_SECOND": "100000",
        "BURST": "1000000",
        "MAX_CONCURRENT_REQUESTS": "10000",
        "MAX_WATCHES": "10000",
    }
    settings = {
        "LISTEN": f"127.0.0.1:{port}",
        "AUDIT_FILE": str(folder / "audit.jsonl"),
        **limits,
    }
    env = {f"MODELPLANE_FRONT__{name}": value for name, value in settings.items()} | {
        "MODELPLANE_TEMPORAL__ADDRESS": address
    }
    with (folder / "front.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "front.main",
            cwd=ROOT,
            env={**os.environ, **env},
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"

    async def ready() -> bool:
        assert process.returncode is None, (folder / "front.log").read_text()
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{url}/readyz") as answer,
            ):
                return answer.ok
        except aiohttp.ClientError:
            return False

    try:
        await eventually(ready, bool, within=_WITHIN_SECONDS, what="the front")
        yield url, process.pid
    finally:
        process.terminate()
        await process.wait()


def cpu_seconds(process: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def server_process() -> int:
    """Return the Temporal server among the children of this process."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        name, _, rest = entry.read_text().partition("(")[2].rpartition(")")
        if "temporal" in name and int(rest.split()[1]) == os.getpid():
            return int(entry.parent.name)
    raise LookupError("temporal")


async def through_front(
    fleet: ProtocolFleet, load: Load, folder: Path
) -> dict[str, Any]:
    assert isinstance(fleet.workers, WorkerApart)
    address = fleet.client.service_client.config.target_host
    async with a_front(address, folder) as (url, process), AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(limit=0)
        writer = await stack.enter_async_context(
            aiohttp.ClientSession(url, connector=connector)
        )
        watching = [
            await stack.enter_async_context(aiohttp.ClientSession(url))
            for _ in range(load.watchers)
        ]
        started = time.perf_counter()
        await create(writer, load)
        note(f"{load.objects} objects created", time.perf_counter() - started)
        await drive(
            writer,
            watching,
            Load(
                load.objects, load.watchers, load.per_second, _WARM_SECONDS, load.prefix
            ),
            _WITHIN_SECONDS,
        )
        processes = {
            "front": process,
            "worker": fleet.workers.process.pid,
            "server": server_process(),
            "clients": os.getpid(),
        }
        before = {name: cpu_seconds(each) for name, each in processes.items()}
        outcome = await drive(writer, watching, load, _WITHIN_SECONDS)
        cpu = {
            name: round((cpu_seconds(each) - before[name]) / len(outcome.writes), 5)
            for name, each in processes.items()
        }
    for told in sorted(set(outcome.failed))[:5]:
        sys.stderr.write(f"not written: {told[:512]}\n")
    return {
        **figures(outcome),
        "cpu": cpu,
        "events": outcome.events,
        "failed": len(outcome.failed),
        "watchers_behind": len(outcome.behind),
    }


def figures(outcome: Outcome, prefix: str = "") -> dict[str, float]:
    """Return times in milliseconds."""
    found = {
        f"{prefix}p50_ms": percentile(outcome.writes, 0.5),
        f"{prefix}p99_ms": percentile(outcome.writes, 0.99),
    }
    if outcome.delays:
        found["watch_p99_ms"] = percentile(outcome.delays, 0.99)
    return {name: round(seconds * 1000, 1) for name, seconds in found.items()}


async def without_front(fleet: ProtocolFleet, load: Load) -> dict[str, float]:
    """Send the requests that the front sends for each write: a query, and an update."""
    plane, outcome = ControlPlane(fleet.client, Settings()), Outcome()
    started = time.perf_counter()

    async def one(number: int) -> None:
        due = started + number / load.per_second
        await asyncio.sleep(due - time.perf_counter())
        target = Target(BY_KIND["InferenceClass"], "", load.name(number))
        tree = await plane.describe(target)
        manifest = {
            "apiVersion": tree["apiVersion"],
            "kind": tree["kind"],
            "spec": tree["spec"],
        }
        manifest["metadata"] = {"name": target.name, "labels": {LABEL: f"raw-{number}"}}
        await plane.replace(
            target,
            Replace(request_id=new_request_id(), by="bench", manifest=manifest),
            create=False,
        )

    async def timed(number: int) -> None:
        try:
            await one(number)
        except CommandFailed as failure:
            outcome.failed.append(failure.message)
        # An abandoned write took as long too.
        outcome.writes.append(time.perf_counter() - started - number / load.per_second)

    await asyncio.gather(
        *(timed(number) for number in range(round(load.per_second * load.seconds)))
    )
    outcome.writes.sort()
    return {**figures(outcome, "raw_"), "raw_failed": len(outcome.failed)}


async def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    load = Load(chosen.objects, chosen.watchers, chosen.writes, chosen.seconds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with protocol_fleet(clients=1, apart=folder) as fleet:
            seen = await through_front(fleet, load, folder)
            raw = await without_front(fleet, load)
    return {**seen, **raw, "over_raw": round(seen["p99_ms"] / raw["raw_p99_ms"], 2)}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objects", type=int, default=1_000)
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--writes", type=float, default=100, help="a second")
    parser.add_argument("--seconds", type=float, default=60)
    chosen = parser.parse_args(arguments)
    with one_line() as say:
        seen = asyncio.run(measure(chosen))
        say(
            {
                **vars(chosen),
                **seen,
                "targets": TARGETS,
                "met": all(seen[name] <= target for name, target in TARGETS.items()),
            }
        )


if __name__ == "__main__":
    main(sys.argv[1:])
