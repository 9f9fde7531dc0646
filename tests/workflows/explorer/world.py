"""A fleet without Temporal and without clusters.

Running workflows, signals in transit, and the workloads on each cluster. The decisions
are those of the product. Temporal is replaced by a list of running workflows, and
signals are delivered at once, twice, late or, if a test says so, never. Every choice
comes from one generator, so that a seed repeats a whole exploration.
"""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from api_types.messages.delivery import SignalRequest
from api_types.names import FLEET_SCHEDULER_ID

START = 1_700_000_000_000

# A repeated signal may arrive this long after it was sent.
LATE_MS = 120_000
# The delay of visibility.
VISIBILITY_LAG_MS = 1_000
# The delay of a cluster's watch.
WATCH_LAG_MS = 1_000

Receiver = Callable[[Any], None]


@dataclass(frozen=True)
class Chances:
    """The probability of each fault, each time that it can happen."""

    repeated: float = 0.03
    late: float = 0.05
    lost: float = 0.0
    silent: float = 0.1
    unlisted: float = 0.1
    failed: float = 0.05
    user: float = 0.08
    terminated: float = 0.006
    scheduler_lost: float = 0.002
    continued_lost: float = 0.7
    continued: float = 0.02
    undone: float = 0.01
    interrupted: float = 0.2


@dataclass
class Pod:
    """The nodes of one replica on a cluster, while its objects exist."""

    uid: str
    workflow_id: str
    deployment_id: str
    nodes: dict[tuple[str, str], int]
    since: int = 0


@dataclass
class Clusters:
    """The actual state: the nodes of each pool, and the workloads on them.

    `excused` has pools that lost nodes. Earlier decisions may still be applied there,
    so overcommitment of such a pool proves nothing until all of its workloads fit
    again.
    """

    nodes: dict[tuple[str, str], int] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    excused: set[tuple[str, str]] = field(default_factory=set)
    removed: dict[str, tuple[Pod, int]] = field(default_factory=dict)

    def used(self) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for pod in self.pods.values():
            found.update(pod.nodes)
        return found

    def set_nodes(self, pool: tuple[str, str], count: int) -> None:
        if count < self.nodes.get(pool, 0):
            self.excused.add(pool)
        self.nodes[pool] = count

    def apply(self, pod: Pod) -> bool:
        """Create a replica's objects.

        Return False, and change nothing, if objects of another uid have these names.
        """
        if any(
            other.workflow_id == pod.workflow_id and other.uid != pod.uid
            for other in self.pods.values()
        ):
            return False
        pod.since = self.pods[pod.uid].since if pod.uid in self.pods else pod.since
        self.pods[pod.uid] = pod
        return True

    def remove(self, uid: str, now: int) -> None:
        if pod := self.pods.pop(uid, None):
            self.removed[uid] = (pod, now)

    def watched(self, cluster: str, now: int) -> list[str]:
        """Return the replicas whose objects the watch of a cluster sees, after its delay."""
        self.removed = {
            uid: (pod, at)
            for uid, (pod, at) in self.removed.items()
            if now - at < WATCH_LAG_MS
        }
        pods = [
            pod for pod in self.pods.values() if now - pod.since >= WATCH_LAG_MS
        ] + [pod for pod, _ in self.removed.values()]
        return sorted(
            {
                pod.workflow_id.partition("/")[2]
                for pod in pods
                if any(name == cluster for name, _ in pod.nodes)
            }
        )

    def excuse_no_more(self, charged: Counter[tuple[str, str]]) -> None:
        """End the excuse of pools in which all workloads fit, and all charges that the
        scheduler made with knowledge of their nodes.
        """
        used = self.used()
        self.excused -= {
            pool
            for pool in self.excused
            if max(used[pool], charged[pool]) <= self.nodes[pool]
        }

    def overcommitted(self) -> list[str]:
        return [
            f"{'/'.join(pool)}: {count} of {self.nodes.get(pool, 0)} nodes are used"
            for pool, count in self.used().items()
            if count > self.nodes.get(pool, 0) and pool not in self.excused
        ]


class Node(ABC):
    """One running workflow: its queued signals, and the steps that it takes."""

    def __init__(self, world: "World", workflow_id: str) -> None:
        self.world = world
        self.workflow_id = workflow_id
        self.started_ms = world.ms
        self.first_run = world.random.getrandbits(64)
        self.mail: deque[tuple[str, Any]] = deque()
        self.receivers: dict[str, Receiver] = {}

    def handle(self) -> None:
        """Handle all queued signals. Handlers only store them."""
        while self.mail:
            name, payload = self.mail.popleft()
            if name in self.receivers:
                self.receivers[name](payload)

    @abstractmethod
    def is_ready(self) -> bool:
        pass

    @abstractmethod
    def wakes_at(self) -> int | None:
        """Return the time in ms of the next timer."""

    @abstractmethod
    def step(self) -> None:
        """Run to the next point at which another workflow can run."""

    def knows_all(self) -> bool:
        """Return whether this is a scheduler that has read all accounts."""
        return False

    @abstractmethod
    def account(self) -> Any:
        pass

    def memo(self) -> Any:
        """Return the connection in the memo; None for all but clusters."""
        return None


@dataclass
class World:
    """All workflows, clusters and signals.

    Attributes:
      ended: accounts of closed workflows, which still answer queries.
      memos: the memos of closed clusters.
      terminated: accounts of terminated workflows, with the start in ms of their last run.
      unfinished: workflows whose last run was terminated.
    """

    random: Random
    chances: Chances
    ms: int = START
    running: dict[str, Node] = field(default_factory=dict)
    ended: dict[str, Any] = field(default_factory=dict)
    terminated: dict[str, tuple[Any, int]] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)
    memos: dict[str, Any] = field(default_factory=dict)
    late: list[tuple[int, Callable[[], None]]] = field(default_factory=list)
    clusters: Clusters = field(default_factory=Clusters)
    start_scheduler: Callable[[], Node] | None = None
    trace: deque[str] = field(default_factory=lambda: deque(maxlen=5000))
    steps: int = 0

    # Time

    def now_ms(self) -> int:
        return self.ms

    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.ms / 1000, tz=UTC)

    # Chance

    def happens(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance

    def note(self, text: str) -> None:
        self.trace.append(f"{self.steps} {(self.ms - START) / 1000:.3f} {text}")

    def later(self, act: Callable[[], None]) -> None:
        """Schedule an action at a random time, within the delay of a late signal."""
        self.late.append((self.ms + self.random.randrange(LATE_MS), act))

    # Workflows

    def start(self, node: Node) -> None:
        self.note(f"start {node.workflow_id}")
        self.running[node.workflow_id] = node
        self.ended.pop(node.workflow_id, None)
        self.unfinished.discard(node.workflow_id)

    def end(self, node: Node) -> None:
        """Complete a workflow."""
        if self.running.get(node.workflow_id) is node:
            self.note(f"complete {node.workflow_id}")
            self.ended[node.workflow_id], self.memos[node.workflow_id] = (
                node.account(),
                node.memo(),
            )
            del self.running[node.workflow_id]

    def terminate(self, workflow_id: str) -> None:
        """Terminate a workflow abruptly, as an operator can.

        Its unfinished sends may still arrive.
        """
        node = self.running.pop(workflow_id)
        self.note(f"terminate {workflow_id}")
        self.unfinished.add(workflow_id)
        self.ended[workflow_id], self.memos[workflow_id] = node.account(), node.memo()
        self.terminated[workflow_id] = (self.ended[workflow_id], node.started_ms)

    def listed(self, prefixes: Iterable[str]) -> list[str]:
        """Return the ids that visibility lists.

        It omits workflows that started a moment ago.
        """
        return [
            each
            for each in self.running_of(prefixes)
            if self.ms - self.running[each].started_ms >= VISIBILITY_LAG_MS
        ]

    def running_of(self, prefixes: Iterable[str]) -> list[str]:
        """Return the ids of all running workflows of some kinds."""
        wanted = tuple(f"{prefix.lower()}/" for prefix in prefixes)
        return sorted(
            workflow_id
            for workflow_id in self.running
            if workflow_id.startswith(wanted)
        )

    def listed_terminated(self, kind: str, deployment: str) -> list[str]:
        """Return the ids of a deployment that visibility lists as terminated.

        Some may have been restarted and have completed.
        """
        return sorted(
            workflow_id
            for workflow_id, (account, started_ms) in self.terminated.items()
            if workflow_id.startswith(f"{kind.lower()}/")
            and account["deployment"] == deployment
            if self.ms - started_ms >= VISIBILITY_LAG_MS
        )

    def query(self, workflow_id: str) -> Any:
        """Return the account of a workflow; None if it does not exist or does not answer.

        A closed one answers with its last state.
        """
        node = self.running.get(workflow_id)
        if node is None:
            return self.ended.get(workflow_id)
        if self.happens(self.chances.silent):
            return None
        node.handle()
        return node.account()

    # Signals

    def signal(self, request: SignalRequest) -> bool:
        """Deliver a signal; return False if its receiver does not run.

        Start the scheduler if it does not run.
        """
        if (
            request.workflow_id == FLEET_SCHEDULER_ID
            and request.workflow_id not in self.running
            and self.start_scheduler is not None
        ):
            self.start(self.start_scheduler())
        node = self.running.get(request.workflow_id)
        if node is None:
            return False
        if self.happens(self.chances.lost):
            self.note(f"lost: {request.signal} to {request.workflow_id}")
            return True
        node.mail.append((request.signal, request.payload))
        return True

    def send(self, requests: Iterable[SignalRequest]) -> set[str]:
        """Send signals like an activity, which may be executed twice, with one attempt late.

        Return the receivers that do not run.
        """
        rows = list(requests)
        attempts = 1 + self.happens(self.chances.repeated)
        missing: set[str] = set()
        for attempt in range(attempts):
            # A lost attempt may have sent only some signals.
            sent = (
                rows
                if attempt == attempts - 1
                else rows[: self.random.randrange(len(rows) + 1)]
            )
            for request in sent:
                self.note(f"{request.signal} -> {request.workflow_id}")
                if not self.signal(request):
                    missing.add(request.workflow_id)
        if rows and self.happens(self.chances.late):
            again = self.random.choice(rows)
            self.later(lambda: self._arrive_late(again))
        return missing

    def _arrive_late(self, request: SignalRequest) -> None:
        self.note(f"late: {request.signal} -> {request.workflow_id}")
        self.signal(request)

    # Going on

    def is_busy(self) -> bool:
        """Return whether a workflow can run now."""
        return any(node.mail or node.is_ready() for node in self.running.values())

    def advance(self) -> None:
        """Run one step of one workflow, or advance the time until one can run."""
        self.steps += 1
        due = [entry for entry in self.late if entry[0] <= self.ms]
        if due:
            self.late.remove(due[0])
            due[0][1]()
            return
        ready = [node for node in self.running.values() if node.mail or node.is_ready()]
        if ready:
            node = self.random.choice(ready)
            self.ms += self.random.randrange(20)
            node.step()
            return
        wakes = [
            wake
            for node in self.running.values()
            if (wake := node.wakes_at()) is not None
        ]
        wakes += [entry[0] for entry in self.late]
        self.ms = max(self.ms + 1, min(wakes, default=0))
