"""One simulated fleet: its clock, Temporal, workers, clusters and clouds, and its faults."""

import asyncio
import contextlib
import gc
import hashlib
import logging
import random
import sys
import time
import traceback
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from activities.messaging.entity_client import EntityClient
from activities.messaging.search_attributes import identity_at_start
from api_types import names, queues
from api_types.messages.entities import Replace, SetSpec
from tests.simulation import parts, script, watching
from tests.simulation.auditors import Finding
from tests.simulation.client import SimClient
from tests.simulation.clock import Clock, VirtualLoop, virtual_time
from tests.simulation.coverage import Coverage
from tests.simulation.faults import PER_RUN, Faults
from tests.simulation.runs import value_of
from tests.simulation.server import Server
from tests.simulation.workers import CURRENT, Worker, WorkerDied, Workers
from workflows import registry

ResultT = TypeVar("ResultT")

DAY = 86_400.0
SHOWN_STEPS = 40
_CALL_SECONDS = (0.001, 0.02)
_LATENCY = (0.001, 0.2)
_RETRY_SECONDS = 5.0
# The last requests of the script take some time, also when it ends after the horizon.
_REST_SECONDS = 300.0
_OUTAGE = (2.0, 120.0)
_UNSERVED = (5.0, 300.0)
_GC_THRESHOLDS = (10_000, 10, 10)
_CLOCK_STEPS = (-3600.0, 3600.0)


@dataclass(frozen=True)
class Step:
    """One logged step of the simulation."""

    number: int
    seconds: float
    kind: str
    subject: str
    detail: str = ""

    def __str__(self) -> str:
        """Show it in a line."""
        hours, rest = divmod(self.seconds, 3600)
        moment = f"{int(hours):3}:{int(rest // 60):02}:{rest % 60:06.3f}"
        return f"{self.number:6} {moment} {self.kind} {self.subject} {self.detail}".rstrip()


@dataclass
class Result:
    """How a simulation ended. `finding` is empty if all auditors passed."""

    seed: int
    days: float
    finding: str = ""
    steps: list[str] = field(default_factory=list)
    count: int = 0
    replays: int = 0
    tasks: int = 0
    faults: int = 0
    digest: str = ""
    wall: float = 0.0
    fleet: str = ""
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def command(self) -> str:
        """The command that repeats it."""
        return (
            f".venv/bin/python -m tests.simulation --seed {self.seed} --days {self.days:g} "
            f"--fleet {self.fleet} --verbose"
        )

    def __str__(self) -> str:
        """Show it in a line."""
        return (
            f"seed {self.seed}: {self.days:g} days, {self.count} steps, {self.tasks} tasks, "
            f"{self.replays} replays, {self.faults} faults, {self.wall:.1f} s, {self.digest[:12]}"
            + (" FINDING" if self.finding else "")
        )


class World:
    """Everything of one simulation. Other modules reach each other through it."""

    def __init__(
        self, seed: int, days: float, fleet: str, clock: Clock, *, verbose: bool = False
    ) -> None:
        self.seed, self.fleet, self.horizon = seed, fleet, days * DAY
        self.verbose = verbose
        self.draw = self.source("world")
        self.clock = clock
        self.steps: deque[Step] = deque(maxlen=None if verbose else 4 * SHOWN_STEPS)
        self.observers: list[Callable[[World, Step], None]] = []
        self.logs: list[str] = []
        self.count = self.replays = self.struck = 0
        self.quiet_since: float | None = None
        self._digest = hashlib.sha256()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.faults = Faults(seed, self.horizon, self.clock.seconds, self._struck)
        self.server = Server(self, self.source("server"))
        self.client = SimClient(self)
        self.parts = parts.make_parts(self)
        self.workers = Workers(
            self, self.source("workers"), self.draw.choice((1, 1, 2)), self._new_worker
        )

    def _new_worker(self) -> Sequence[Callable[..., Any]]:
        messaging = EntityClient()
        return [
            messaging.signal,
            messaging.signal_many,
            messaging.redeliver,
            messaging.read_memo,
            messaging.count_entities,
            messaging.query_each,
            messaging.start_replicas,
            messaging.survey,
            messaging.broadcast,
            messaging.check_receivers,
            messaging.await_running,
            *registry.REBUILD_ACTIVITIES,
            *registry.SCHEDULER_ACTIVITIES,
            *self.parts.new_worker(),
        ]

    # For other modules

    def source(self, name: str) -> random.Random:
        """Return a source of random numbers that no other part draws from."""
        return random.Random(f"{name}/{self.seed}")  # noqa: S311 - repeatable on purpose

    @property
    def quiet(self) -> bool:
        """Whether the last fault and the last action of the script are over."""
        return self.quiet_since is not None

    def note(self, kind: str, subject: str, detail: str = "") -> None:
        """Log a step, and let the observers look."""
        self.count += 1
        step = Step(self.count, self.clock.seconds(), kind, subject, detail)
        self.steps.append(step)
        self._digest.update(f"{step.seconds:.6f} {kind} {subject} {detail}\n".encode())
        if self.verbose:
            sys.stdout.write(f"{step}\n")
        for observer in self.observers:
            observer(self, step)

    def _struck(self, name: str, subject: str) -> None:
        self.struck += 1
        self.note("fault", name, subject)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Run a coroutine of the simulation; an exception of it ends the simulation."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broke(error)

    def broke(self, error: BaseException) -> None:
        """End the simulation with an error."""
        if not self._broken.done():
            self._broken.set_exception(error)

    async def latency(self, low: float = _LATENCY[0], high: float = _LATENCY[1]) -> None:
        """Wait for the time of a call. Raises WorkerDied if the caller's process is gone."""
        self.alive()
        await asyncio.sleep(self.draw.uniform(low, high))
        self.alive()

    def alive(self) -> None:
        """Raise WorkerDied if the process of the caller is gone."""
        worker = CURRENT.get()
        if worker is not None and not worker.alive:
            raise WorkerDied

    def latency_of_calls(self) -> float:
        """Draw the seconds of a call to Temporal."""
        return self.draw.uniform(*_CALL_SECONDS)

    def client_of(self, worker: Worker) -> Any:
        """Return the Temporal client of a worker."""
        return SimClient(self, worker)

    def peek(self, workflow_id: str, query: str, *arguments: Any) -> Any:
        """Query a workflow in no time; None if it is in no cache or had no task yet."""
        execution = self.server.executions.get(workflow_id)
        run = execution.run if execution else None
        if run is None or run.instance is None or not run.tasks or run.task_open:
            return None
        answer = self.server.tasks.query(run.instance, run, query, arguments).respond_to_query
        if answer.HasField("failed"):
            raise AssertionError(f"{workflow_id} cannot answer {query}: {answer.failed.message}")
        return value_of(answer.succeeded.response)

    # Actions of users

    async def apply(self, manifest: dict[str, Any], by: str = "simulation") -> None:
        """Apply a manifest by signal-with-start, as `modelplane apply` does. Raises RPCError."""
        kind, meta = manifest["kind"], manifest["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        message = SetSpec(request_id=self.request_id(), by=by, manifest=manifest)
        await self.client.start_workflow(
            kind,
            None,
            id=names.workflow_id(kind, namespace, name),
            task_queue=queues.WORKFLOWS,
            **identity_at_start(kind, namespace, name),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="set_spec",
            start_signal_args=[message.wire()],
        )

    async def replace(self, manifest: dict[str, Any], by: str = "simulation") -> Any:
        """Change an object by the update, as the front does.

        Raises RPCError and WorkflowUpdateFailedError.
        """
        kind, meta = manifest["kind"], manifest["metadata"]
        message = Replace(request_id=self.request_id(), by=by, manifest=manifest)
        handle = self.client.get_workflow_handle(
            names.workflow_id(kind, meta.get("namespace", ""), meta["name"])
        )
        return await handle.execute_update("replace", message.wire(), id=message.request_id)

    async def signal(self, kind: str, namespace: str, name: str, signal: str, payload: Any) -> None:
        """Signal an object. Raises RPCError."""
        handle = self.client.get_workflow_handle(names.workflow_id(kind, namespace, name))
        await handle.signal(signal, payload)

    async def terminate(self, workflow_id: str, reason: str = "") -> None:
        """Terminate a workflow. Raises RPCError."""
        await self.client.get_workflow_handle(workflow_id).terminate(reason=reason)

    async def reset(self, workflow_id: str, kept: int) -> None:
        """Reset a workflow to an earlier task; the first `kept` tasks stay. Raises RPCError.

        While the clock is behind, the numbers of the workflow's messages would be lower
        than those that it sent. The documentation forbids a reset then, so a request that
        the server reads at such a time has no effect.
        """
        server = self.server

        def reset() -> None:
            if self.clock.has_caught_up():
                server.reset(server.open_run(workflow_id), kept)

        await self.client.call(reset, workflow_id)

    async def insist(self, call: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Repeat a call until Temporal accepts it."""
        while True:
            try:
                return await call()
            except RPCError as error:
                if error.status.name == "NOT_FOUND":
                    raise
                await asyncio.sleep(_RETRY_SECONDS)

    def request_id(self) -> str:
        """Draw a request id."""
        return f"{self.draw.getrandbits(96):024x}"

    # The run

    async def live(self) -> None:
        """Run until the horizon, and run the auditors at rest. Raises Finding."""
        self.watch = watching.Watch(self)
        self.observers.insert(0, self.watch)
        playing = self.spawn(self._play(), "script")
        for name in PER_RUN:
            self.spawn(self._strike_now_and_then(name), name)
        await self.follow(self._until_judged(playing))

    async def follow(self, story: Coroutine[Any, Any, None]) -> None:
        """Run until a story ends. An error of any part of the world ends it, too."""
        asyncio.get_running_loop().set_exception_handler(self._uncaught)
        main = self.spawn(story, "story")
        await asyncio.wait({main, self._broken}, return_when=asyncio.FIRST_COMPLETED)
        if self._broken.done():
            self._broken.result()

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Raise the error of any part of the world when the body ends, also if the body failed."""
        asyncio.get_running_loop().set_exception_handler(self._uncaught)
        try:
            yield
        finally:
            if self._broken.done():
                self._broken.result()

    async def _until_judged(self, playing: "asyncio.Task[None]") -> None:
        await self._until_rest(playing)
        await watching.at_rest(self)
        self.server.replay_all()

    def _uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        del loop
        error = context.get("exception")
        if error is not None and not isinstance(error, WorkerDied):
            self.broke(error)

    async def _play(self) -> None:
        await script.play(self)
        self.note("script", "ended")

    async def _until_rest(self, playing: "asyncio.Task[None]") -> None:
        await asyncio.sleep(self.faults.last)
        await asyncio.wait({playing})
        self.faults.end()
        self.server.come_up()
        for worker in self.workers.all:
            worker.refused.clear()
        self.quiet_since = self.clock.seconds()
        self.note("quiet", "the last fault is over")
        await asyncio.sleep(max(self.horizon - self.clock.seconds(), _REST_SECONDS))

    async def _strike_now_and_then(self, name: str) -> None:
        do = {
            "clock.step": self._step_clock,
            "temporal.outage": self._outage,
            "worker.kill": self._kill,
            "queue.unserved": self._unserve,
        }[name]
        while True:
            wait = self.faults.next_after(name)
            if wait is None:
                return
            await asyncio.sleep(wait)
            if self.quiet:
                return
            if self.faults.active:
                await do()

    async def _step_clock(self) -> None:
        seconds = self.faults.between(*_CLOCK_STEPS)
        self._struck("clock.step", f"{seconds:+.0f} s")
        self.clock.step(seconds)

    async def _outage(self) -> None:
        seconds = self.faults.between(*_OUTAGE)
        self._struck("temporal.outage", f"{seconds:.0f} s")
        self.server.go_down()
        await asyncio.sleep(seconds)
        self.server.come_up()

    async def _kill(self) -> None:
        self._struck("worker.kill", "")
        self.workers.kill()

    async def _unserve(self) -> None:
        queue = self.draw.choice(
            (
                queues.WORKFLOWS,
                queues.SCHEDULER,
                queues.CLOUD,
                *queues.cluster_queues(queues.CLUSTERS),
            )
        )
        self._struck("queue.unserved", queue)
        for worker in self.workers.all:
            worker.refused.add(queue)
        await asyncio.sleep(self.faults.between(*_UNSERVED))
        for worker in self.workers.all:
            worker.refused.discard(queue)

    def result(self, finding: str, wall: float) -> Result:
        """Return the result of the simulation."""
        return Result(
            seed=self.seed,
            days=self.horizon / DAY,
            finding=finding,
            steps=[str(step) for step in list(self.steps)[-SHOWN_STEPS:]] if finding else [],
            count=self.count,
            replays=self.replays,
            tasks=sum(run.tasks for each in self.server.executions.values() for run in each.runs),
            faults=self.struck,
            fleet=self.fleet,
            coverage=self.watch.coverage,
            digest=self._digest.hexdigest(),
            wall=wall,
        )


@contextlib.contextmanager
def logs_into(lines: list[str]) -> Iterator[None]:
    """Keep the logs of the product, and print none of them."""

    def keep(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> Any:
        lines.append(" ".join(f"{key}={value}" for key, value in event.items()))
        raise structlog.DropEvent

    root, processors = logging.getLogger(), structlog.get_config()["processors"]
    before, root.handlers = (list(processors), root.handlers), [_Logs(lines)]
    processors[:] = [keep]
    try:
        yield
    finally:
        processors[:], root.handlers = before


class _Logs(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector take a few percent of the time instead of a tenth.

    Most objects of the process are modules, which each full collection would look through.
    """
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def simulate(seed: int, days: float, fleet: str = "small", *, verbose: bool = False) -> Result:
    """Run the simulation of one seed."""
    draw = random.Random(f"loop/{seed}")  # noqa: S311 - repeatable on purpose
    begun = time.perf_counter()
    with rare_collections(), asyncio.Runner(loop_factory=lambda: VirtualLoop(draw)) as runner:
        return runner.run(_run(seed, days, fleet, begun, verbose=verbose))


async def _run(seed: int, days: float, fleet: str, begun: float, *, verbose: bool) -> Result:
    clock = Clock(asyncio.get_running_loop())
    uuids = random.Random(f"uuids/{seed}")  # noqa: S311 - repeatable on purpose
    with virtual_time(clock, uuids):
        world = World(seed, days, fleet, clock, verbose=verbose)
        finding = ""
        try:
            with logs_into(world.logs):
                await world.live()
        except Finding as error:
            finding = str(error)
        except Exception as error:  # noqa: BLE001 - any error of a part is a finding
            finding = "".join(traceback.format_exception(error))
        finally:
            world.workers.end()
        return world.result(finding, time.perf_counter() - begun)
