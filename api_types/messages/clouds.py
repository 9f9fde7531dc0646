"""Messages about cloud clusters: orders, reports, and the input of activities.

Cloud objects have keys such as `net/vpc`. No message contains a secret: a credential is
a reference.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from api_types.base import Id, Message, Name, SentAt, Text
from api_types.resources.status import EventRecord

CONNECTION = "Connection"
STORAGE_CLASS = "StorageClass"
HELM_RELEASE = "HelmRelease"
SYSTEM_NODES = "SystemNodes"
IN_CLUSTER = (CONNECTION, STORAGE_CLASS, HELM_RELEASE, SYSTEM_NODES)
"""The kinds of objects inside the cluster, which disappear with it."""

CLUSTER_KEY = "cluster"
"""The key of the control plane."""

WAITS = "waits"
"""The heartbeat field of an activity on an object: the reason why it waits."""

OBJECTS_MAX = 200
FACTS_MAX = 32
REMOVED_MAX = 16
"""The number of removed objects in a report. The InferenceCluster carries them."""
LEFTOVERS_MAX = 300
"""The number of listed leftovers. The workflow carries them."""
STATES_MAX = 64
"""The number of objects in a report. The InferenceCluster carries them."""
_YEAR_SECONDS = 366 * 24 * 3600

Provider = Literal["GKE", "EKS"]
ObjectPhase = Literal[
    "Waiting",
    "Creating",
    "Ready",
    "Differs",
    "Degraded",
    "Broken",
    "Deleting",
    "Absent",
    "Unknown",
]
"""The phase of an object. `Degraded` exists, and the cloud reports a problem of it."""
ClusterPhase = Literal[
    "Pending", "Preflight", "Creating", "Ready", "Changing", "Deleting", "Deleted"
]
WorkClass = Literal["Quick", "Medium", "ControlPlane", "NodePool"]

Wait = Annotated[int, Field(ge=1, le=_YEAR_SECONDS)]
"""A duration in seconds, which the receiver adds to the current time."""

Facts = Annotated[dict[Name, Id], Field(max_length=FACTS_MAX)]
"""The reported properties of an existing object, such as its id, as text."""


class CloudAccount(Message):
    """The owner of cloud objects and its credential.

    The credential is Secret `modelplane-system/<secret>`. `installation` and `project`
    are pinned: they are empty until they are first read, and then constant as long as
    the cluster exists.
    """

    provider: Provider
    cluster: Name
    cluster_uid: Id
    secret: Name
    region: Id
    installation: Id = ""
    project: Id = ""


class CloudObject(Message):
    """One desired object, in the form of `activities.clouds.desired.wire`.

    `digest` covers the creation parameters of the object, without ids and tokens.
    """

    key: Id
    kind: Id
    name: Id
    needs: list[Id] = Field(default_factory=list)
    work: WorkClass = "Quick"
    calls: list[dict[str, Any]] = Field(default_factory=list)
    waits_for: Text = ""
    digest: Id = ""
    pool: Name = ""


RemovedObjects = Annotated[list[CloudObject], Field(max_length=REMOVED_MAX)]


class CloudOrder(Message):
    """The desired cloud objects of an InferenceCluster: signal `apply` of CloudCluster.

    A newer order replaces an older one. `manifest` is the InferenceCluster, `classes`
    the specs of the existing classes of its pools. `removable_pools` are pools that the
    spec no longer has and that no replica uses; other removed pools are kept for
    `provision.poolDrainWait`.

    The other fields are for a CloudCluster that lost its state. `account` is the pinned
    account. `was_usable` and `was_ready` state whether the control plane, and the
    cluster, have ever been ready. `never_ready` are the keys of objects that were not
    ready yet when the cluster was. `removed` are objects that were no longer wanted and
    still existed, or None.
    """

    uid: Id
    sequence: SentAt
    generation: int
    manifest: dict[str, Any]
    classes: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    removable_pools: list[Name] = Field(default_factory=list)
    account: CloudAccount | None = None
    was_usable: bool = False
    was_ready: bool = False
    never_ready: Annotated[list[Id], Field(max_length=STATES_MAX)] = Field(
        default_factory=list
    )
    removed: RemovedObjects | None = None


class CloudDelete(Message):
    """Delete all cloud objects: signal `delete` of CloudCluster.

    `abandon` ends the workflow without any deletion, and reports the remaining objects.
    `skip_cluster` sends no more requests to the cluster itself. `emptied` states that
    users' load balancers and claims are deleted from the cluster; otherwise their cloud
    objects are kept. `order` is for a CloudCluster that lost its state and does not
    know the objects.
    """

    uid: Id
    sequence: SentAt
    skip_cluster: bool = False
    abandon: bool = False
    emptied: bool = False
    order: CloudOrder | None = None


class CloudProblem(Message):
    """A rejection or a warning; `at` is a pool or an object, empty for the cluster."""

    reason: Id
    at: Id = ""
    text: Text = ""


class CloudHealth(Message):
    """A problem that the cloud reports of an existing object.

    `error` is the error type that decides the next step, `code` the cloud's own code.
    `text` quotes the cloud and begins with the code. `lacks_nodes` states that the
    cloud does not provide all nodes of a pool.
    """

    error: Id
    code: Id
    text: Text = ""
    lacks_nodes: bool = False


class CloudObjectState(Message):
    """The state of a pool or of another object, for its InferenceCluster.

    - `key`, `kind`, `name`: the object at the cloud; empty for a pool that the plan
      refuses.
    - `pool`: the name of the pool in the spec, or "" for an object of the cluster.
    - `ready`: the object is as planned, and the cloud reports no problem of it.
    - `was_ready`: the object was ready at any time.
    - `lacks_nodes`: the cloud does not provide all nodes of the pool.
    - `reason`: the error type of the problem, or "". `code` is the cloud's code.
    - `message`: the words of the cloud, or the awaited state of an object without a
      problem.
    - `since`: when the problem began, or the work on an object without one.
    - `next_step`: the next step of a person, if there is a problem. `retry_at` is the
      time of Modelplane's next attempt.
    """

    key: Id = ""
    kind: Id = ""
    name: Id = ""
    pool: Name = ""
    phase: ObjectPhase = "Waiting"
    ready: bool = False
    was_ready: bool = False
    lacks_nodes: bool = False
    reason: Id = ""
    code: Id = ""
    message: Text = ""
    since: Id = ""
    next_step: Text = ""
    retry_at: Id = ""


class CloudObjectShown(Message):
    """One object of the inventory, for people and for the InferenceCluster.

    `cause` is the error type of a Broken object.
    """

    key: Id
    kind: Id
    name: Id
    id: Id = ""
    phase: ObjectPhase = "Waiting"
    epoch: int = 0
    message: Text = ""
    cause: Id = ""
    health: CloudHealth | None = None


class CloudReport(Message):
    """The state of a CloudCluster, for its InferenceCluster: signal `cloud_reported`.

    - `usable`: the control plane responds and accepts connections.
    - `cloud_cluster`: the name of the cluster at the cloud.
    - `ready`: the control plane, the system pool and a GPU pool are ready. Until then
      `reason` and `message` are those of the condition `ClusterReady`, and `waits_for`
      is an object that is not ready.
    - `states`: the pools, and all other objects that have a problem or that a ready
      cluster does not have yet.
    - `storage_class`: the storage class for caches.
    - `events`: the events of the CloudCluster since the last report, the oldest first.
    - `cluster_gone`: the cloud reported that the control plane no longer exists.
    - `removed`: objects that are no longer wanted and still exist.

    `cluster_gone` and `removed` are None if they are unknown, and in reports of earlier
    versions.
    """

    uid: Id
    sequence: SentAt
    generation: int = 0
    phase: ClusterPhase = "Pending"
    usable: bool = False
    ready: bool = False
    reason: Id = ""
    message: Text = ""
    waits_for: Text = ""
    states: Annotated[list[CloudObjectState], Field(max_length=STATES_MAX)] = Field(
        default_factory=list
    )
    cloud_cluster: Id = ""
    account: CloudAccount | None = None
    problems: Annotated[list[CloudProblem], Field(max_length=OBJECTS_MAX)] = Field(
        default_factory=list
    )
    storage_class: Id = ""
    objects_ready: int = 0
    objects: int = 0
    leftovers: list[Text] = Field(default_factory=list)
    events: list[EventRecord] = Field(default_factory=list)
    cluster_gone: bool | None = None
    removed: RemovedObjects | None = None


# Input and output of activities.


class PlanCloud(Message):
    """Plan the desired objects and run the preflight checks: `plan_cloud`.

    The activity reads zones, reservations and cards from the cloud.
    """

    account: CloudAccount
    manifest: dict[str, Any]
    classes: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    known: dict[Id, Facts] = Field(default_factory=dict)


class CloudPlan(Message):
    """The desired objects, in the order of creation.

    `account` includes the pinned values. If an entry of `refused` names no pool, there
    are no objects. The numbers are settings of the worker, because workflow code cannot
    read them: `provision.driftInterval`, `quotaRetry`, `capacityRetry`, `maxParallel`,
    `poolDrainWait`, `brokenRebuilds` and `auditRounds`.
    """

    account: CloudAccount
    cloud_cluster: Id = ""
    objects: Annotated[list[CloudObject], Field(max_length=OBJECTS_MAX)] = Field(
        default_factory=list
    )
    refused: list[CloudProblem] = Field(default_factory=list)
    warnings: list[CloudProblem] = Field(default_factory=list)
    storage_class: Id = ""
    drift_seconds: Wait = 600
    quota_seconds: Wait = 900
    capacity_seconds: Wait = 600
    parallel: Annotated[int, Field(ge=1)] = 6
    drain_seconds: Wait = 1800
    rebuilds: Annotated[int, Field(ge=0)] = 1
    audit_rounds: Annotated[int, Field(ge=1)] = 3


class CloudObjectOrder(Message):
    """Create, update or delete an object: `ensure_cloud_object`, `delete_cloud_object`.

    `known` are the facts of all existing objects, by key. `again`: an earlier attempt
    in this epoch may have created the object without a record of it. Without `create`,
    a missing object is not created.
    """

    account: CloudAccount
    object: CloudObject
    known: dict[Id, Facts] = Field(default_factory=dict)
    epoch: int = 0
    again: bool = False
    create: bool = True


class CloudObjectResult(Message):
    """An object that is Ready, Broken or Absent, with its facts.

    `message` quotes the cloud. `cause` is the error type to report for a Broken object,
    even after a rebuild. `health` is a problem of an object that is Ready.
    """

    key: Id
    phase: ObjectPhase
    facts: Facts = Field(default_factory=dict)
    cause: Id = ""
    message: Text = ""
    health: CloudHealth | None = None


class ObserveCloud(Message):
    """Observe all objects of an inventory: `observe_cloud`, which changes nothing."""

    account: CloudAccount
    objects: Annotated[list[CloudObject], Field(max_length=OBJECTS_MAX)]
    known: dict[Id, Facts] = Field(default_factory=dict)


class CloudObserved(Message):
    """The result of `observe_cloud`, by key."""

    objects: list[CloudObjectShown] = Field(default_factory=list)
    facts: dict[Id, Facts] = Field(default_factory=dict)


class AuditCloud(Message):
    """Search for leftovers of a cluster: `audit_cloud`.

    With `sweep`, the activity deletes the leftovers that the cluster created and that
    nothing else needs. `keys` are the keys of the inventory: an object with our label
    and another key is from a lost inventory, and is swept too. `emptied`: users had no
    more load balancers in the cluster, so remaining ones are orphaned.
    """

    account: CloudAccount
    cloud_cluster: Id = ""
    known: dict[Id, Facts] = Field(default_factory=dict)
    keys: Annotated[list[Id], Field(max_length=OBJECTS_MAX)] = Field(
        default_factory=list
    )
    sweep: bool = False
    emptied: bool = False


class Leftover(Message):
    """A leftover object: its kind and id at the cloud.

    `evidence` is the reason why it belongs to the cluster, `link` its page in the
    cloud's console. `unmarked` is the missing owner mark of an object with the cluster's
    name, and the command that restores it: until then the object is not deleted.
    `blocks` states that an object of others blocks the deletion while it exists.
    """

    kind: Id
    id: Id
    evidence: Text = ""
    ours: bool = False
    key: Id = ""
    link: Text = ""
    unmarked: Text = ""
    blocks: bool = True


class CloudAudit(Message):
    """The leftovers; none if the cloud is clean.

    `swept` are the objects that the audit deleted. `more` is the number of leftovers
    that are not listed.
    """

    leftovers: Annotated[list[Leftover], Field(max_length=LEFTOVERS_MAX)] = Field(
        default_factory=list
    )
    swept: Annotated[list[Leftover], Field(max_length=LEFTOVERS_MAX)] = Field(
        default_factory=list
    )
    more: int = 0
