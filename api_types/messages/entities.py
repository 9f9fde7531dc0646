"""Signals and updates between entities, and from users to entities.

Each argument is one JSON object in camelCase; every message that changes something carries a request id, so that a repeat is recognised.
`manifest` is plain JSON: it is checked by the receiver, because a signal cannot be rejected.
"""

from typing import Any, Literal

from pydantic import Field

from api_types.base import Message
from api_types.messages.cluster_work import ClusterFacts, Connection
from api_types.prices import UNPRICED
from api_types.resources.status import LeftBehind

# --- from users ---------------------------------------------------------------------------------------------------------------------


class SetSpec(Message):
    """Create or change an object: the whole manifest."""

    request_id: str = ""
    by: str = ""
    manifest: Any = None


class Scale(Message):
    """Set the replica count."""

    request_id: str = ""
    by: str = ""
    replicas: Any = None


class Delete(Message):
    """Request deletion; `evict` first moves the replicas on a cluster elsewhere."""

    request_id: str = ""
    by: str = ""
    evict: bool = False


class Force(Message):
    """Skip the teardown step now waited for (`step`), or all that remain (`all`)."""

    request_id: str = ""
    by: str = ""
    scope: Literal["step", "all"] = "step"
    reason: str = ""


class RetryNow(Message):
    """Retry now what waits for its next attempt."""

    by: str = ""


class Replace(Message):
    """Change an object that was read at `resource_version`; empty means whatever it is now."""

    request_id: str = ""
    by: str = ""
    resource_version: str = ""
    manifest: Any = None


# --- ModelDeployment and FleetScheduler -----------------------------------------------------------------------------------------------


class ReplicaState(Message):
    """The state of one replica: identity, ledger entry, health. `gone`: its objects are removed and its nodes were released."""

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


class KnownReplica(Message):
    """One replica, as its deployment knows it.

    `ready`: Ready with the template that was last sent to it. `template`: the digest of that template, "" if unknown; a template in a
    superseded answer never reached the replica, and this is how the scheduler learns of it.
    """

    uid: str
    template: str = ""
    ready: bool = False
    serving: bool = False
    terminating: bool = False


class Place(Message):
    """Request placements: the desired state of one deployment and the replicas it has."""

    request_id: str
    epoch: int = 0
    namespace: str
    name: str
    uid: str
    generation: int
    wanted: int
    need: dict[str, Any]
    kept: list[KnownReplica] = Field(default_factory=list)


class ReplicaPlacement(Message):
    """One replica of an answer, with the cluster where it is or shall be.

    `entry` is its ledger entry in wire form, set where the replica must be given a template; the replica keeps it, so that a scheduler
    that lost its state gets the same entry back. `after` are uids that must be gone before it starts.
    """

    uid: str
    name: str
    cluster: str
    index: int
    action: Literal["Keep", "Create", "Update", "Replace"]
    entry: dict[str, Any] = Field(default_factory=dict)
    after: list[str] = Field(default_factory=list)


class ReplicaEviction(Message):
    """One replica to delete, and why."""

    uid: str
    name: str
    cluster: str
    reason: str


class PlacedCondition(Message):
    """A condition that the scheduler sets."""

    type: str
    status: str
    reason: str
    message: str = ""


class Placed(Message):
    """The answer to a `Place`. `more`: steps remain that wait for the health of replicas; send `Place` again when it changes."""

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
    """The scheduler evicts a replica in favour of another deployment."""

    epoch: int
    eviction: ReplicaEviction


class SetLabels(Message):
    """What a replica takes over from its deployment besides the template: labels, which change nothing on a cluster, and picker flags."""

    labels: dict[str, str] = Field(default_factory=dict)
    picker_flags: dict[str, str] = Field(default_factory=dict)


class SetPolicy(Message):
    """The whole fleet policy (`modelplane policy set`)."""

    by: str = ""
    policy: Any = None


class Bound(Message):
    """The workflows of placed replicas are started: ledger entries by uid, for a scheduler that does not have them."""

    entries: dict[str, dict[str, Any]]


class Released(Message):
    """The objects of a replica are deleted: its nodes are free."""

    uid: str
    name: str = ""


class Revoke(Message):
    """The scheduler asks a deployment whether it still needs a reservation."""

    uid: str
    epoch: int


class Revoked(Message):
    """The deployment gives back a reservation that it never used."""

    uid: str


class Occupied(Message):
    """What the ledger still holds on a cluster that is being deleted; sent whenever it changes."""

    cluster: str
    sequence: int
    replicas: list[str] = Field(default_factory=list)


class Resync(Message):
    """A scheduler that lost its state asks all deployments and replicas to report theirs."""

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
    """The spec of one InferenceClass; None once it is deleted."""

    name: str
    generation: int
    spec: dict[str, Any] | None


class Forget(Message):
    """An object is deleted, or (a deployment) wants no replica any more: drop its queued request and unused reservations."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class ClassUse(Message):
    """A cluster registers as a user of a class, to be signalled about its changes; `used` False unregisters."""

    cluster: str
    used: bool = True


class ClassChanged(Message):
    """A class was created or changed. `price_milli`: the price of a node-hour in thousandths, negative when unknown."""

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
    connection: Connection | None = None
    facts: ClusterFacts | None = None


# --- ModelReplica -----------------------------------------------------------------------------------------------------------------------


class StartReplica(Message):
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
    """The state that a replica reports to its deployment; the highest sequence of a uid wins."""

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


# --- sent through activities -------------------------------------------------------------------------------------------------------------


class StartReplicas(Message):
    """Start the workflows of placed replicas; one that already runs with the same uid is left as it is."""

    replicas: list[StartReplica] = Field(alias="births")


class StartedReplicas(Message):
    """Names held by a replica with another uid."""

    conflicts: list[str] = Field(default_factory=list)
