"""Signals to and from the FleetScheduler, and accounts for a scheduler without state.

Like all signal arguments, each message is one JSON object in camelCase. A receiver
recognizes a repeated message by its request id, its epoch or its sequence number.

Lists with an item per replica are `Compact`: a deployment may have a thousand replicas,
and their ledger entries repeat engines, selectors and labels. A small list is plain
JSON. In a large list repeated parts are written once, and the list is compressed. Code
that reads the model always gets the full list.
"""

from typing import Any, Literal

from pydantic import Field

from api_types.base import Id, Message, SentAt, Text
from api_types.payloads.packing import Compact

# Messages to and from deployments and replicas.


class KnownReplica(Message):
    """One replica, as its deployment knows it.

    `ready` means that it is Ready with the last template that was sent to it.
    `template` is the digest of that template, or "" if unknown. The scheduler compares
    the digest to detect that a template in a superseded response never reached the
    replica. A scheduler that does not know the uid looks up the replica by `name` and
    `cluster`.
    """

    uid: Id
    name: Id = ""
    cluster: Id = ""
    template: Id = ""
    ready: bool = False
    serving: bool = False
    terminating: bool = False


class PlacementRequest(Message):
    """Requests placements: the desired state of one deployment and its replicas.

    `sequence` counts the requests of one `uid`. A later request replaces an earlier
    one. `returned` are placements that the deployment returned or rejected, and will
    never start.
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
    """One replica of a response, with its current or future cluster.

    `entry` is its ledger entry in wire form, set if the replica needs a new template.
    The replica stores the entry, so that a scheduler that lost its state can restore
    it. `after` are uids of replicas, of any deployment, that must be gone before this
    one starts. The scheduler receives every end, and signals when they are gone.
    """

    uid: Id
    name: Id
    cluster: Id
    index: int
    action: Literal["Keep", "Create", "Update", "Replace"]
    entry: dict[str, Any] = Field(default_factory=dict)
    after: list[Id] = Field(default_factory=list)


class ReplicaEviction(Message):
    """One replica to delete, with the reason.

    `entry`: its ledger entry, if its workflow was started. A deployment that does not
    know the replica must delete it nevertheless, because an earlier deployment of that
    name may have started it.
    """

    uid: Id
    name: Id
    cluster: Id
    reason: Text
    index: int = 0
    entry: dict[str, Any] = Field(default_factory=dict)


class PlacedCondition(Message):
    """A condition of the deployment that the scheduler sets."""

    type: Id
    status: Id
    reason: Id
    message: Text = ""


class PlacementResponse(Message):
    """The response to a `PlacementRequest`.

    `more`: further steps wait for the health of replicas; the deployment requests again
    when it changes. `drain_due_seconds`: it requests again after this time, when the
    drain budget stops protecting a replica; 0 if it protects none. `sequence` orders
    the responses to one request, because the scheduler decides a request again while it
    waits for capacity.
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
    drain_due_seconds: int = 0
    scheduler_version: Id = ""


class Evict(Message):
    """Evicts a replica.

    A deployment that has not started the replica, or does not know it, responds with
    `Revoked`.
    """

    epoch: SentAt
    eviction: ReplicaEviction


class Bound(Message):
    """The workflows of placed replicas are started.

    `entries` are ledger entries by uid, for a scheduler that does not have them.
    """

    entries: Compact[dict[Id, dict[str, Any]]]


class Released(Message):
    """The objects of a replica are deleted and its nodes are free.

    A replica signals the scheduler. The scheduler signals the deployments that have a
    placement with this replica in `after`, which may include other deployments.
    """

    uid: Id
    name: Id = ""


class Revoke(Message):
    """The scheduler asks a deployment whether it still needs a reservation."""

    uid: Id
    epoch: SentAt


class Revoked(Message):
    """The deployment returns a placement that it never started and never will.

    `deployment_uid` is the uid of the deployment.
    """

    uid: Id
    deployment_uid: Id = ""


# Messages to and from clusters and classes.


class ReportCluster(Message):
    """The published view of one InferenceCluster: its manifest with status.

    `replicas` are the replicas with observed objects, as namespace/name. Every report
    contains them, but a change of them alone causes no report. A scheduler that does
    not know one of them requests its account, and places nothing on the cluster until
    it has the account. `created` is the time at which the cluster was applied, in ms; 0
    in reports of earlier versions.
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
    """The replicas in the ledger on a cluster that is being deleted.

    The scheduler sends it on every change.
    """

    cluster: Id
    uid: Id = ""
    sequence: SentAt
    replicas: Compact[list[Id]] = Field(default_factory=list)


# Messages of all entities.


class Forget(Message):
    """An object is deleted, or a deployment wants no replicas any more.

    The scheduler drops its queued request and unused reservations. `gone`: a deployment
    has no replicas left, and waits for `Forgotten`.
    """

    kind: Id
    name: Id
    namespace: Id = ""
    uid: Id = ""
    gone: bool = False


class Forgotten(Message):
    """The ledger has no entries of a deployment that is being deleted: it may end.

    `uid` is the uid of the deployment. The scheduler first evicts replicas that the
    deployment does not know, because an earlier deployment of its name has started
    them.
    """

    uid: Id
    epoch: SentAt = 0


class Resync(Message):
    """A scheduler that lost its state requests new reports from all entities."""

    epoch: SentAt


class ReplicaAccount(Message):
    """The state of one replica: identity, ledger entry, health.

    `started`: it has or had a workflow, so its objects may be on the cluster. `gone`:
    its objects are deleted, and its nodes released. `template_sequence`: the number of
    its newest template or labels.
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
    """The account of a deployment: its uid, the newest epoch, and its replicas.

    The replicas are packed `ReplicaAccount`s: a thousand ledger entries exceed the
    limit of a query response, and nearly all of their text is the same.
    """

    uid: str = ""
    epoch: int = 0
    replicas: str = ""


# Messages of users.


class SetPolicy(Message):
    """The whole fleet policy (`modelplane policy set`)."""

    by: Id = ""
    policy: Any = None
