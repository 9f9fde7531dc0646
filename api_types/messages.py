"""What entities say to each other and to their users.

Signal and update arguments are one JSON object in camelCase; every message that changes something carries a request id, so that a repeat
is recognised. `manifest` is plain JSON: it is checked by the receiver, because a signal cannot be refused.
"""

from typing import Any, Literal

from pydantic import Field

from api_types.base import Message
from api_types.prices import UNPRICED
from api_types.status import LeftBehind

# --- from users ---------------------------------------------------------------------------------------------------------------------


class SetSpec(Message):
    """Create or change an object: the whole manifest."""

    request_id: str = ""
    by: str = ""
    manifest: Any = None


class Scale(Message):
    """Order a replica count."""

    request_id: str = ""
    by: str = ""
    replicas: Any = None


class Delete(Message):
    """Order the teardown; `evict` first moves what runs on a cluster elsewhere."""

    request_id: str = ""
    by: str = ""
    evict: bool = False


class Force(Message):
    """Give up the teardown step now waited for (`step`), or all that are left (`all`)."""

    request_id: str = ""
    by: str = ""
    scope: Literal["step", "all"] = "step"
    reason: str = ""


class RetryNow(Message):
    """Try at once what waits for its next attempt."""

    by: str = ""


class Replace(Message):
    """Change an object that was read at `resource_version`; empty means whatever it is now."""

    request_id: str = ""
    by: str = ""
    resource_version: str = ""
    manifest: Any = None


# --- ModelDeployment and FleetScheduler -----------------------------------------------------------------------------------------------


class ReplicaState(Message):
    """The account of one replica: identity, stamp, health. `gone`: its objects are removed and its nodes were released."""

    uid: str
    namespace: str
    deployment: str
    name: str
    cluster: str
    index: int
    generation: int = 0
    entry: dict[str, Any] = Field(default_factory=dict)
    ready: bool = False
    serving: bool = False
    deleting: bool = False
    gone: bool = False


class KeptState(Message):
    """The health of one replica, as its deployment knows it. `ready`: Ready with the template that was last ordered."""

    uid: str
    ready: bool = False
    serving: bool = False
    terminating: bool = False


class Place(Message):
    """Ask for placements: the wanted state of one deployment and what it has."""

    request_id: str
    epoch: int = 0
    namespace: str
    name: str
    uid: str
    generation: int
    wanted: int
    need: dict[str, Any]
    kept: list[KeptState] = Field(default_factory=list)


class ReplicaPlacement(Message):
    """One replica of an answer: where it is or shall be.

    `entry` is its ledger entry in wire form, set where the template must be (re)stamped; the replica keeps it, so that a scheduler without
    memory gets the same entry back. `after` are uids that must be gone before it starts.
    """

    uid: str
    name: str
    cluster: str
    index: int
    action: Literal["Keep", "Create", "Update", "Replace"]
    entry: dict[str, Any] = Field(default_factory=dict)
    after: list[str] = Field(default_factory=list)


class ReplicaEviction(Message):
    """One replica that must go, and why."""

    uid: str
    name: str
    cluster: str
    reason: str


class PlacedCondition(Message):
    """A condition as the scheduler words it."""

    type: str
    status: str
    reason: str
    message: str = ""


class Placed(Message):
    """The answer to a `Place`. `more`: steps are left that wait for the health of replicas; ask again when it changes."""

    request_id: str
    epoch: int
    generation: int
    placements: list[ReplicaPlacement] = Field(default_factory=list)
    evictions: list[ReplicaEviction] = Field(default_factory=list)
    shortfall: int = 0
    message: str = ""
    conditions: list[PlacedCondition] = Field(default_factory=list)
    more: bool = False
    scheduler_version: str = ""


class Evict(Message):
    """The scheduler takes a replica's place away for somebody else."""

    epoch: int
    eviction: ReplicaEviction


class SetLabels(Message):
    """What users say of a deployment besides its template: labels, with which nothing on a cluster changes, and flags of the picker."""

    labels: dict[str, str] = Field(default_factory=dict)
    picker_flags: dict[str, str] = Field(default_factory=dict)


class SetPolicy(Message):
    """The whole fleet policy (`modelplane policy set`)."""

    by: str = ""
    policy: Any = None


class Bound(Message):
    """The workflows of placed replicas exist: ledger entries by uid, for a scheduler that never heard of them."""

    entries: dict[str, dict[str, Any]]


class Released(Message):
    """The objects of a replica are gone: its nodes are free."""

    uid: str
    name: str = ""


class Revoke(Message):
    """Ask the deployment whether a reservation is still wanted."""

    uid: str
    epoch: int


class Revoked(Message):
    """The deployment let go of a reservation that it never used."""

    uid: str


class Occupied(Message):
    """What the ledger still holds on a cluster that is being deleted; sent whenever it changes."""

    cluster: str
    sequence: int
    replicas: list[str] = Field(default_factory=list)


class Resync(Message):
    """A scheduler without memory asks for everybody's account."""

    epoch: int


# --- clusters and classes ---------------------------------------------------------------------------------------------------------------


class ReportCluster(Message):
    """The published view of one InferenceCluster: its manifest with status."""

    name: str
    uid: str
    sequence: int
    epoch: int = 0
    gone: bool = False
    manifest: dict[str, Any]


class ReportClass(Message):
    """One InferenceClass for the catalogue."""

    name: str
    generation: int
    spec: dict[str, Any] | None


class Forget(Message):
    """An object is gone for good, or (a deployment) wants nothing any more: its waiting request and unused reservations are void."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class ClassWanted(Message):
    """A cluster uses a class and wants to hear of its changes; `used` False ends that."""

    cluster: str
    used: bool = True


class ClassChanged(Message):
    """A class is new or different. `price_milli`: a node-hour in thousandths, negative when nobody told."""

    name: str
    uid: str = ""
    generation: int = 0
    spec: dict[str, Any] | None = None
    price_milli: int = UNPRICED


class ClusterChanged(Message):
    """What the replicas on a cluster must know of it."""

    name: str
    sequence: int
    present: bool = True
    connected: bool = False
    unreachable_for_seconds: int = 0
    connection: "Connection | None" = None
    facts: "ClusterFacts | None" = None


# --- ModelReplica -----------------------------------------------------------------------------------------------------------------------


class ReplicaBirth(Message):
    """The start argument of a ModelReplica: its identity and first template."""

    uid: str
    namespace: str
    name: str
    deployment: str
    deployment_uid: str
    cluster: str
    index: int
    generation: int
    spec: dict[str, Any]
    entry: dict[str, Any] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    picker_flags: dict[str, str] = Field(default_factory=dict)


class SetTemplate(Message):
    """A newer template for a running replica, with its new ledger entry."""

    generation: int
    spec: dict[str, Any]
    entry: dict[str, Any] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    picker_flags: dict[str, str] = Field(default_factory=dict)


class ReplicaChanged(Message):
    """What a replica tells its deployment; the highest sequence of a uid wins."""

    name: str
    uid: str
    sequence: int
    phase: str
    ready: bool = False
    serving: bool = False
    generation: int = 0
    endpoint: str = ""
    message: str = ""
    left_behind: list[LeftBehind] = Field(default_factory=list)


# --- talk to activities -----------------------------------------------------------------------------------------------------------------


class Connection(Message):
    """How to reach a cluster: a reference into the secret store, never the secret."""

    cluster: str
    namespace: str
    name: str
    key: str = "kubeconfig"
    task_queue: str = ""


class ClusterFacts(Message):
    """What was found out about a connected cluster, and the settings of lives on it.

    `drivers` maps each device class of the cluster's pools to the DRA driver behind it. Settings come from the worker that made contact,
    because workflow code reads none: `withdraw_after_seconds` is `cluster.unreachableAfter`, `drain_seconds` is `teardown.drainSeconds`.
    """

    kubernetes_version: str = ""
    dra_version: str = ""
    routing: str = "pool"
    scheduler_type: str = "none"
    mesh_provider: str = "none"
    storage_class_name: str = ""
    gateway_address: str = ""
    gateway_message: str = ""
    apis: list[str] = Field(default_factory=list)
    drivers: dict[str, str] = Field(default_factory=dict)
    withdraw_after_seconds: int = 300
    drain_seconds: int = 15
    cache_attempts_max: int = 0
    cache_evict_grace_seconds: int = 600


class Connect(Message):
    """Try a connection and find out what the cluster serves."""

    connection: Connection


class WatchCluster(Message):
    """Watch one connected cluster until cancelled."""

    connection: Connection
    cluster_uid: str
    pools: list[str] = Field(default_factory=list)
    capacity_adapter: str = "none"


class ReplicaOrder(Message):
    """All that is needed to render and apply one replica.

    `cache_claim` is the volume claim of its cache that is ready on the cluster; `picker_flags` are extra flags of its endpoint picker.
    `patience_seconds` is for what shall go, as in `TeardownStep`.
    """

    connection: Connection
    facts: ClusterFacts
    namespace: str
    name: str
    uid: str
    generation: int
    deployment: str
    cluster: str
    index: int
    spec: dict[str, Any]
    cache_claim: str = ""
    picker_flags: dict[str, str] = Field(default_factory=dict)
    inventory: list["AppliedObject"] = Field(default_factory=list)
    patience_seconds: float = 0


class AppliedObject(Message):
    """One object of ours on a cluster. `id` is `<apiVersion>/<Kind>/<namespace>/<name>`.

    `digest` is empty for a copy that is shared with other replicas: no single one of them watches over it.
    """

    key: str
    id: str
    hash: str = ""
    digest: str = ""


class AppliedEngine(Message):
    """What an engine became. `template_hashes` has one per member, the serving one (`template_hash`) first."""

    name: str
    kind: str
    workload_name: str
    copies: int
    size: int = 1
    template_hash: str = ""
    template_hashes: list[str] = Field(default_factory=list)
    kv_block_size: int = 0
    kv_block_size_source: str = ""


class Applied(Message):
    """What an apply did: the whole inventory, whether anything changed, and what to warn of.

    `held`: why the engine workloads were left out for now (`WaitingForCache`); empty if they were not. `connector` and `decode_port` are
    those of a PrefillDecode replica. `picker_guards`: the gateway refuses requests while the endpoint picker does not answer.
    """

    hash: str
    workload_name: str
    workload_namespace: str
    inventory: list[AppliedObject] = Field(default_factory=list)
    engines: list[AppliedEngine] = Field(default_factory=list)
    routing_surface: str = ""
    connector: str = ""
    decode_port: int = 0
    picker_guards: bool = False
    held: str = ""
    changed: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


class TeardownStep(Message):
    """One step of an ordered teardown.

    `patience_seconds`: after so long the answer says what remains (0: only when nothing does). `given_up`: ids of objects for which
    nobody waits any more.
    """

    connection: Connection
    facts: ClusterFacts
    uid: str
    workload_name: str
    workload_namespace: str
    number: int
    inventory: list[AppliedObject] = Field(default_factory=list)
    patience_seconds: float = 0
    given_up: list[str] = Field(default_factory=list)


class Awaited(Message):
    """An object that should be gone and is still there. `id` as in an inventory; `why`: what holds it, such as a finalizer."""

    id: str
    why: str = ""

    def __str__(self) -> str:
        *_, kind, namespace, name = self.id.split("/")
        return f"{kind} {namespace}/{name}".replace(" /", " ") + (f" ({self.why})" if self.why else "")


class StepDone(Message):
    """What a teardown step left alone on purpose, such as objects of another owner, and what remains of the rest: nothing if it is done."""

    skipped: list[str] = Field(default_factory=list)
    remaining: list[Awaited] = Field(default_factory=list)


class Pruned(Message):
    """What became of objects that an update left over: ids that are gone or belong to somebody else, and what remains of the others."""

    removed: list[str] = Field(default_factory=list)
    remaining: list[Awaited] = Field(default_factory=list)


class Tell(Message):
    """One signal to one entity."""

    workflow_id: str
    signal: str
    payload: Any = None


class TellMany(Message):
    """Signals to several entities, in order for each."""

    tells: list[Tell]


class ToldMany(Message):
    """The workflow ids that do not exist (any more)."""

    missing: list[str] = Field(default_factory=list)


class StartReplicas(Message):
    """Start the workflows of placed replicas; one that runs already under the same uid is left alone."""

    births: list[ReplicaBirth]


class StartedReplicas(Message):
    """Names held by a replica with another uid."""

    conflicts: list[str] = Field(default_factory=list)
