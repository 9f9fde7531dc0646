"""One moment of a simulated fleet as plain data: states of workflows, and objects that exist.

The auditors read nothing else, so a test writes a moment by hand. `observe.py` reads one from a
running world.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Pool = tuple[str, str]
"""A cluster and the name of one of its pools."""
Name = tuple[str, str]
"""A namespace and a name."""


@dataclass(frozen=True)
class SeenWorkflow:
    """The last run of a workflow id.

    Attributes:
        running: the run is open. `status`: its status, as Temporal names it.
        events: the events of all runs of this id, which grow as the history does.
        failures: failed workflow tasks.
        phase: the phase of the object. `unsettled`: why the object is not at rest, such as the
        condition that is not True.
        shown: its phase, reasons of its conditions and reasons of its events, for coverage.
        deleting: its deletion was requested. `left_behind`: the objects that it lists,
        as place/kind/namespace/name.
        outdated: the worker that ran its last tasks died before its status was read, so
        the status is an earlier one.
        uids_before_resets: the uids that it had when an operator reset it.

    """

    workflow_id: str
    kind: str = ""
    uid: str = ""
    running: bool = True
    status: str = "RUNNING"
    events: int = 0
    failures: tuple[str, ...] = ()
    phase: str = ""
    unsettled: str = ""
    deleting: bool = False
    generation: int = 0
    outdated: bool = False
    uids_before_resets: frozenset[str] = frozenset()
    left_behind: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()

    @property
    def finished(self) -> bool:
        """Whether the object is gone: it ended by itself."""
        return self.status == "COMPLETED"


@dataclass(frozen=True)
class SeenPlacement:
    """A replica as its deployment tracks it.

    `reason`: why it is being deleted, empty if it is not. `index`: shared by a replica and
    its replacement in a rollout.
    """

    uid: str
    name: str
    cluster: str = ""
    started: bool = True
    ready: bool = True
    reason: str = ""
    waits_for: tuple[str, ...] = ()
    index: int = 0


@dataclass(frozen=True)
class SeenDeployment:
    """A ModelDeployment that runs.

    `scaled`: the count of the last accepted scale, None if there was none; `applied`: the
    count in the last applied spec. `placeable`: the
    replicas that a new decision would place now. `explained`: the message that says why some
    are not placed. `was_reset`: an operator took some of its tasks back. `drains`: replicas
    wait on a drained cluster until a deadline.
    """

    name: Name
    uid: str = ""
    deleting: bool = False
    was_reset: bool = False
    drains: bool = False
    wanted: int = 0
    scaled: int | None = None
    applied: int | None = None
    answered: bool = True
    shortfall: int = 0
    explained: str = ""
    placeable: int = 0
    shown_ready: int = 0
    placements: tuple[SeenPlacement, ...] = ()


@dataclass(frozen=True)
class SeenReplica:
    """A ModelReplica that runs.

    `serving`: it can answer requests, with some copies of each engine at least. `held`: its
    template waits for a cache, and earlier pods may run. `step`: of its teardown; `skipped`:
    a step was skipped, or abandoned with its cluster. `was_reset`: an operator took some of
    its tasks back, or terminated its earlier run. `replaces`: its last apply did not end, and
    may have replaced workloads.
    """

    uid: str
    name: Name
    deployment: str = ""
    deployment_uid: str = ""
    cluster: str = ""
    deleting: bool = False
    serving: bool = True
    held: bool = False
    step: int = 0
    skipped: bool = False
    was_reset: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class SeenEntry:
    """A ledger entry: `pools` are the nodes that it is charged with."""

    uid: str
    name: Name = ("", "")
    cluster: str = ""
    state: str = "Bound"
    pools: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SeenPod:
    """A pod of a replica.

    It asks for so many `devices` of its node, and for the whole node where pools are counted in
    nodes. `ending`: the workload that made it is being deleted.
    """

    cluster: str
    pool: str
    owner: str
    devices: int = 0
    node: str = "node"
    ready: bool = True
    deleting: bool = False
    ending: bool = False


@dataclass(frozen=True)
class SeenPool:
    """The nodes of a pool, and the devices of each.

    `excused`: it lost nodes, or is counted otherwise, since it last was not too full.
    """

    nodes: int
    devices: int = 8
    by_device: bool = False
    excused: bool = False


@dataclass(frozen=True)
class SeenObject:
    """An object of ours at a place.

    A cluster, the control cluster or a cloud. `owner`: the uid of its entity. `cache`: the label
    with the name of its ModelCache, empty for objects of other kinds.
    """

    place: str
    kind: str
    name: Name
    owner: str
    cache: str = ""

    def __str__(self) -> str:
        namespace, name = self.name
        return f"{self.place}/{self.kind}/{namespace}/{name}"


@dataclass(frozen=True)
class SeenRoute:
    """The endpoints in the live route of a service, and the endpoints that it selects.

    `orphaned`: the service was terminated, and the next one of its name has not caught up.
    """

    service: Name
    endpoints: frozenset[str]
    expected: frozenset[str] | None = None
    orphaned: bool = False


@dataclass(frozen=True)
class SeenCluster:
    """An InferenceCluster, of its last run.

    `reachable`: its API server answers. `deleting`: its deletion was requested. `tearing_down`: its
    stack is being removed. `finds_release`: its preflight refuses a Helm release.
    `unexplained`: cloud objects with a problem that lacks the cloud's words, the time or the
    next step.
    """

    name: str
    uid: str = ""
    ready: bool = True
    finds_release: bool = False
    reachable: bool = True
    deleting: bool = False
    tearing_down: bool = False
    cloud_deleting: bool = False
    forced: bool = False
    unexplained: tuple[str, ...] = ()


@dataclass(frozen=True)
class SeenCopy:
    """Weights on a cluster.

    Their phase by the cache's status, and whether the volume there is complete.
    """

    cache: Name
    cluster: str
    phase: str
    complete: bool


@dataclass(frozen=True)
class Snapshot:
    """One moment.

    Attributes:
        seconds: virtual time. `broken`: ids of workflows that a
        persisting fault affects; no other one is excused.
        workflows: the last run of each id. `replaced`: objects that ended before
        another one of their name started.
        unreachable: clusters whose API server does not answer now.
        ledger_differences: the answer of the scheduler's own `audit`. `waits`: the
        reasons why the scheduler does not decide.
        dropped: endpoints whose workflow is past the withdrawal step without having skipped it.
        texts: new text of histories, logs and errors; `secrets`: values that may be in none.

    """

    seconds: float = 0
    broken: frozenset[str] = frozenset()
    workflows: Mapping[str, SeenWorkflow] = field(default_factory=dict)
    replaced: tuple[SeenWorkflow, ...] = ()
    deployments: tuple[SeenDeployment, ...] = ()
    replicas: tuple[SeenReplica, ...] = ()
    ledger: tuple[SeenEntry, ...] = ()
    ledger_differences: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    pods: tuple[SeenPod, ...] = ()
    pools: Mapping[Pool, SeenPool] = field(default_factory=dict)
    objects: tuple[SeenObject, ...] = ()
    routes: tuple[SeenRoute, ...] = ()
    clusters: tuple[SeenCluster, ...] = ()
    copies: tuple[SeenCopy, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
