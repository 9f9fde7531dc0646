"""Signals to and from the FleetScheduler, and the accounts that it asks for when it has no state.

As all signal arguments, each is one JSON object in camelCase. A repeat is recognised by its request id, its epoch or its sequence number.
"""

from typing import Any, Literal

from pydantic import Field

from api_types.base import Message

# --- with deployments and replicas ------------------------------------------------------------------------------------------------------


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


class PlacementRequest(Message):
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


class PlacementResponse(Message):
    """The answer to a `PlacementRequest`. `more`: steps remain that wait for the health of replicas; request again when it changes."""

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


# --- with clusters and classes ----------------------------------------------------------------------------------------------------------


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


class Occupied(Message):
    """What the ledger still holds on a cluster that is being deleted; sent whenever it changes."""

    cluster: str
    sequence: int
    replicas: list[str] = Field(default_factory=list)


# --- with all of them -------------------------------------------------------------------------------------------------------------------


class Forget(Message):
    """An object is deleted, or (a deployment) wants no replica any more: drop its queued request and unused reservations."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class Resync(Message):
    """A scheduler that lost its state asks all deployments, clusters and classes to report again."""

    epoch: int


class ReplicaAccount(Message):
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


class UnstartedReplicas(Message):
    """The account of a deployment: its replicas that are placed and have no workflow yet, each as a `ReplicaAccount`."""

    unstarted: list[dict[str, Any]]


# --- from users -------------------------------------------------------------------------------------------------------------------------


class SetPolicy(Message):
    """The whole fleet policy (`modelplane policy set`)."""

    by: str = ""
    policy: Any = None
