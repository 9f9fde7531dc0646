"""Samples of the fleet over the last hours, in a ring of fixed size.

A value takes four bytes. With `SAMPLES` samples, a namespace takes about 4 KB and all
`NAMESPACES_MAX` namespaces about 4 MB.
"""

from array import array
from collections.abc import Iterable
from datetime import UTC, datetime

from api_types.clock import now_ms
from api_types.resources.kinds import BY_KIND
from fleet_client.refs.tree import Tree, at_path, condition
from front.store.projection import Projection

SAMPLES = 240
SAMPLE_SECONDS = 30.0
NAMESPACES_MAX = 1_000
CAPACITY = ("nodes", "charged", "readyClusters")
WORKLOADS = ("wanted", "placed", "ready", "oldestWaitSeconds")
_MOST = 2**32 - 1


class Ring:
    """The last `SAMPLES` samples, each with the same number of whole numbers."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._values = array("I")

    def add(self, sample: Iterable[int]) -> None:
        """Add a sample, and drop the oldest one if the ring is full."""
        self._values.extend(min(max(0, value), _MOST) for value in sample)
        del self._values[: -SAMPLES * self._width]

    def samples(self) -> list[list[int]]:
        """Return the samples, the oldest first."""
        width, values = self._width, self._values.tolist()
        return [values[at : at + width] for at in range(0, len(values), width)]


class History:
    """The history of the capacity, and of the workloads in total and by namespace."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self._capacity = Ring(len(CAPACITY))
        self._all = Ring(len(WORKLOADS))
        self._namespaces: dict[str, Ring] = {}

    def capacity(self) -> list[list[int]]:
        """Return the samples of the capacity, in the order of `CAPACITY`."""
        return self._capacity.samples()

    def workloads(self, namespace: str) -> list[list[int]]:
        """Return the samples of a namespace, or of all if it is empty.

        A sample has the order of `WORKLOADS`.
        """
        ring = self._namespaces.get(namespace) if namespace else self._all
        return ring.samples() if ring else []

    def sample(self) -> None:
        """Add one sample of everything."""
        now = datetime.fromtimestamp(now_ms() / 1000, UTC)
        self._capacity.add(self._sample_of_capacity())
        sums: dict[str, list[int]] = {}
        for tree in self._trees("ModelDeployment"):
            sample = sample_of(tree, now)
            for name in ("", str(tree["metadata"].get("namespace", ""))):
                sums[name] = combined(sums.get(name), sample)
        self._all.add(sums.pop("", [0] * len(WORKLOADS)))
        for name in [name for name in self._namespaces if name not in sums]:
            del self._namespaces[name]
        for name, sample in sums.items():
            if name in self._namespaces or len(self._namespaces) < NAMESPACES_MAX:
                self._namespaces.setdefault(name, Ring(len(WORKLOADS))).add(sample)

    def _sample_of_capacity(self) -> list[int]:
        clusters = self._trees("InferenceCluster")
        pools = [
            pool
            for tree in clusters
            for pool in at_path(tree, ".status.gpuPools") or []
        ]
        ready = [condition(tree, "Ready").get("status") == "True" for tree in clusters]
        return [
            sum(max(0, int(pool.get("nodes") or 0)) for pool in pools),
            sum(pods_of(tree) for tree in self._trees("ModelReplica")),
            sum(ready),
        ]

    def _trees(self, kind: str) -> list[Tree]:
        found = self._projection.of_kind(BY_KIND[kind].kind).values()
        return [stored.tree for stored in found]


def sample_of(tree: Tree, now: datetime) -> list[int]:
    """Return the sample of one deployment, in the order of `WORKLOADS`."""
    wanted = int(at_path(tree, ".spec.replicas") or 0)
    placed = int(at_path(tree, ".status.replicas.total") or 0)
    ready = int(at_path(tree, ".status.replicas.ready") or 0)
    wait = 0
    if placed < wanted:
        since = str(
            condition(tree, "ReplicasScheduled").get("lastTransitionTime")
            or at_path(tree, ".metadata.creationTimestamp")
            or ""
        )
        wait = int((now - _moment(since, now)).total_seconds())
    return [wanted, placed, ready, wait]


def combined(sum_: list[int] | None, sample: list[int]) -> list[int]:
    """Return the sums of two samples, and the longer of their waits."""
    if sum_ is None:
        return sample
    counts = [a + b for a, b in zip(sum_[:-1], sample[:-1], strict=True)]
    return [*counts, max(sum_[-1], sample[-1])]


def pods_of(replica: Tree) -> int:
    """Return the number of its pods that claim devices; each is charged a node."""
    pods = 0
    for engine in at_path(replica, ".spec.engines") or []:
        for member in engine.get("members") or []:
            if member.get("deviceRequests"):
                worker = member.get("worker") or {}
                nodes = worker.get("nodes", 1) if member.get("role") == "Worker" else 1
                pods += int(nodes) * int(engine.get("copies") or 1)
    return pods


def _moment(text: str, default: datetime) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return default
    return found if found.tzinfo else default
