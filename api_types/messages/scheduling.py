"""Signals to and from the FleetScheduler, and the accounts that it asks for when it has no state.

As all signal arguments, each is one JSON object in camelCase. A repeat is recognised by its request id, its epoch or its sequence number.

Lists with an item per replica are `Compact`: a deployment may have a thousand, and its ledger entries repeat engines, selectors and labels.
They are plain JSON where that is small; else what repeats is written once, and the list is compressed. Whoever reads the model sees the
list in full either way.
"""

from typing import Any, Literal

from pydantic import Field

from api_types.base import Id, Message, SentAt, Text
from api_types.payloads.packing import Compact

# --- with deployments and replicas ------------------------------------------------------------------------------------------------------


class KnownReplica(Message):
    """One replica, as its deployment knows it.

    `ready`: Ready with the template that was last sent to it. `template`: the digest of that template, "" if unknown; a template in a
    superseded answer never reached the replica, and this is how the scheduler learns of it. `name` and `cluster` tell a scheduler that
    does not know the uid where to check.
    """

    uid: Id
    name: Id = ""
    cluster: Id = ""
    template: Id = ""
    ready: bool = False
    serving: bool = False
    terminating: bool = False


class PlacementRequest(Message):
    """Request placements: the desired state of one deployment and the replicas it has.

    `sequence` counts the requests of one `uid`: of two requests the later one holds. `returned` are placements that the deployment gave
    back, or refused, and will never start.
    """

    request_id: Id
    sequence: SentAt = 0
    epoch: SentAt = 0
    namespace: Id
    name: Id
    uid: Id
    generation: int
    wanted: int
    need: dict[str, Any]
    kept: Compact[list[KnownReplica]] = Field(default_factory=list)
    returned: Compact[list[Id]] = Field(default_factory=list)


class ReplicaPlacement(Message):
    """One replica of an answer, with the cluster where it is or shall be.

    `entry` is its ledger entry in wire form, set where the replica must be given a template; the replica keeps it, so that a scheduler
    that lost its state gets the same entry back. `after` are uids, of any deployment, that must be gone before it starts: the scheduler
    hears of every end, and says when they are.
    """

    uid: Id
    name: Id
    cluster: Id
    index: int
    action: Literal["Keep", "Create", "Update", "Replace"]
    entry: dict[str, Any] = Field(default_factory=dict)
    after: list[Id] = Field(default_factory=list)


class ReplicaEviction(Message):
    """One replica to delete, and why.

    `entry`: its ledger entry, where its workflow was started. Then a deployment that does not know it has to delete it all the same: an
    earlier deployment of that name may have started it.
    """

    uid: Id
    name: Id
    cluster: Id
    reason: Text
    index: int = 0
    entry: dict[str, Any] = Field(default_factory=dict)


class PlacedCondition(Message):
    """A condition that the scheduler sets."""

    type: Id
    status: Id
    reason: Id
    message: Text = ""


class PlacementResponse(Message):
    """The answer to a `PlacementRequest`. `more`: steps remain that wait for the health of replicas; request again when it changes.

    `sequence` orders the answers to one request: while it waits for capacity it is decided again.
    """

    request_id: Id
    epoch: SentAt
    sequence: SentAt = 0
    generation: int
    placements: Compact[list[ReplicaPlacement]] = Field(default_factory=list)
    evictions: Compact[list[ReplicaEviction]] = Field(default_factory=list)
    shortfall: int = 0
    message: Text = ""
    conditions: list[PlacedCondition] = Field(default_factory=list)
    more: bool = False
    scheduler_version: Id = ""


class Evict(Message):
    """The scheduler evicts a replica. A deployment that has not started it, or does not know it, answers with `Revoked`."""

    epoch: SentAt
    eviction: ReplicaEviction


class Bound(Message):
    """The workflows of placed replicas are started: ledger entries by uid, for a scheduler that does not have them."""

    entries: Compact[dict[Id, dict[str, Any]]]


class Released(Message):
    """The objects of a replica are deleted: its nodes are free.

    A replica tells the scheduler, and that the deployments which have a placement `after` it: it may be the replica of another one.
    """

    uid: Id
    name: Id = ""


class Revoke(Message):
    """The scheduler asks a deployment whether it still needs a reservation."""

    uid: Id
    epoch: SentAt


class Revoked(Message):
    """The deployment gives back a placement that it never started and never will. `deployment_uid` is its own."""

    uid: Id
    deployment_uid: Id = ""


# --- with clusters and classes ----------------------------------------------------------------------------------------------------------


class ReportCluster(Message):
    """The published view of one InferenceCluster: its manifest with status.

    `replicas`: those of which its watch sees objects, as namespace/name. It is sent with each report, and no reason for one: a scheduler
    that does not know one of them asks for its account, and places nothing there until it has answered. `created`: when the cluster was
    applied, in ms; 0 in reports of earlier versions.
    """

    name: Id
    uid: Id
    sequence: SentAt
    epoch: SentAt = 0
    created: int = 0
    gone: bool = False
    replicas: Compact[list[Id]] = Field(default_factory=list)
    manifest: dict[str, Any]


class ReportClass(Message):
    """The spec of one InferenceClass; None before it was applied."""

    name: Id
    generation: int
    epoch: SentAt = 0
    spec: dict[str, Any] | None = None


class Occupied(Message):
    """What the ledger still holds on a cluster that is being deleted; sent whenever it changes."""

    cluster: Id
    uid: Id = ""
    sequence: SentAt
    replicas: Compact[list[Id]] = Field(default_factory=list)


# --- with all of them -------------------------------------------------------------------------------------------------------------------


class Forget(Message):
    """An object is deleted, or (a deployment) wants no replica any more: drop its queued request and unused reservations.

    `gone`: a deployment has no replica left either, and waits for `Forgotten`.
    """

    kind: Id
    name: Id
    namespace: Id = ""
    uid: Id = ""
    gone: bool = False


class Forgotten(Message):
    """Nothing is charged to a deployment that is being deleted: it may end. `uid` is its own.

    What is charged to it and it does not know is evicted first: an earlier deployment of its name has started it.
    """

    uid: Id
    epoch: SentAt = 0


class Resync(Message):
    """A scheduler that lost its state asks all deployments, clusters and classes to report again."""

    epoch: SentAt


class ReplicaAccount(Message):
    """The state of one replica: identity, ledger entry, health.

    `started`: it has a workflow, or had one, so objects of it may be on the cluster. `gone`: they are removed, and its nodes were released.
    `template_sequence`: the number of the newest template or labels that it has.
    """

    uid: str
    namespace: str
    deployment: str
    name: str
    cluster: str
    index: int
    generation: int = 0
    template_sequence: int = 0
    entry: dict[str, Any] = Field(default_factory=dict)
    ready: bool = False
    serving: bool = False
    started: bool = True
    deleting: bool = False
    gone: bool = False


class DeploymentAccount(Message):
    """The account of a deployment: its uid, the epoch that it has seen, and every replica that it holds, as packed `ReplicaAccount`s.

    A thousand ledger entries are more than one query may give, and nearly all of it is the same text.
    """

    uid: str = ""
    epoch: int = 0
    replicas: str = ""


# --- from users -------------------------------------------------------------------------------------------------------------------------


class SetPolicy(Message):
    """The whole fleet policy (`modelplane policy set`)."""

    by: Id = ""
    policy: Any = None
