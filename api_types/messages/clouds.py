"""Messages about the clusters that this project creates at a cloud: orders of InferenceClusters, reports, the work of activities.

Cloud objects have keys such as `net/vpc` (spec/provisioning.md 6.2, 7.2). Nothing here holds a secret: a credential is a reference.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from api_types.base import Id, Message, Name, SentAt, Text

CONNECTION = "Connection"
STORAGE_CLASS = "StorageClass"
HELM_RELEASE = "HelmRelease"
SYSTEM_NODES = "SystemNodes"
IN_CLUSTER = (CONNECTION, STORAGE_CLASS, HELM_RELEASE, SYSTEM_NODES)
"""The kinds of objects that are in the cluster, not at the cloud, and go with it."""

CLUSTER_KEY = "cluster"
"""The key of the control plane."""

WAITS = "waits"
"""In the heartbeats of the work on an object: what is waited for, in words."""

OBJECTS_MAX = 200
FACTS_MAX = 32
REMOVED_MAX = 16
"""So many objects that are not wanted any more are told to the InferenceCluster, which carries them."""
LEFTOVERS_MAX = 300
"""So many leftovers are listed; the workflow carries them."""
_YEAR_SECONDS = 366 * 24 * 3600

Provider = Literal["GKE", "EKS"]
ObjectPhase = Literal["Waiting", "Creating", "Ready", "Differs", "Broken", "Deleting", "Absent", "Unknown"]
ClusterPhase = Literal["Pending", "Preflight", "Creating", "Ready", "Changing", "Deleting", "Deleted"]
WorkClass = Literal["Quick", "Medium", "ControlPlane", "NodePool"]

Wait = Annotated[int, Field(ge=1, le=_YEAR_SECONDS)]
"""A time in seconds, which is added to the present."""

Facts = Annotated[dict[Name, Id], Field(max_length=FACTS_MAX)]
"""What an object reports when it is there, such as its id; facts are text."""


class CloudAccount(Message):
    """Whose cloud objects, and with which credential: Secret `modelplane-system/<secret>` (ruling G18).

    `installation` and `project` are pinned: empty until they are first read, then the same for the whole life of the cluster.
    """

    provider: Provider
    cluster: Name
    cluster_uid: Id
    secret: Name
    region: Id
    installation: Id = ""
    project: Id = ""


class CloudObject(Message):
    """One object that is wanted, as `activities.clouds.wire` writes it. `digest` is over what it is made with, without ids and tokens."""

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
    """What an InferenceCluster wants at its cloud now: signal `apply` of CloudCluster. Only the newest counts.

    `manifest` is the InferenceCluster, `classes` the specs of the classes of its pools that exist. `removable_pools`: pools that the spec
    does not have any more and that no replica names; others that were removed stay for `provision.poolDrainWait`.

    The rest is for a CloudCluster that lost its state. `account`: the one that was pinned. `was_usable`, `was_ready`: whether the control
    plane, and everything, was there once. `removed`: what was not wanted any more, and was still there; None if nothing was.
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
    removed: RemovedObjects | None = None


class CloudDelete(Message):
    """Delete everything at the cloud: signal `delete` of CloudCluster. `abandon`: end without deleting anything, and say what is left.

    `skip_cluster`: nothing is asked of the cluster itself any more. `emptied`: it was asked, and users have no load balancers and claims in
    it any more; otherwise those that they have stay at the cloud. `order` is for a CloudCluster that lost its state, and does not know
    what there may be.
    """

    uid: Id
    sequence: SentAt
    skip_cluster: bool = False
    abandon: bool = False
    emptied: bool = False
    order: CloudOrder | None = None


class CloudProblem(Message):
    """Something that is refused, or a warning; `at` is a pool or an object, empty for the cluster."""

    reason: Id
    at: Id = ""
    text: Text = ""


class CloudObjectShown(Message):
    """One object of the inventory, as people and the InferenceCluster see it."""

    key: Id
    kind: Id
    name: Id
    id: Id = ""
    phase: ObjectPhase = "Waiting"
    epoch: int = 0
    message: Text = ""


class CloudReport(Message):
    """What CloudCluster says to its InferenceCluster: signal `cloud_reported`.

    `usable`: the control plane answers and can be connected to, with `cloud_cluster`, its name at the cloud. `ready`: everything is.
    `reason` and `message` are those of `ClusterReady` while it is not. `waits_for` names the object that is waited for. `storage_class`
    is that of caches. `cluster_gone`: the cloud said that the control plane does not exist any more; `removed`: what is not wanted any
    more, and is still there. Both are None if that is not so, as in what earlier versions send.
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
    cloud_cluster: Id = ""
    account: CloudAccount | None = None
    problems: Annotated[list[CloudProblem], Field(max_length=OBJECTS_MAX)] = Field(default_factory=list)
    storage_class: Id = ""
    objects_ready: int = 0
    objects: int = 0
    leftovers: list[Text] = Field(default_factory=list)
    cluster_gone: bool | None = None
    removed: RemovedObjects | None = None


# --- work of activities ---------------------------------------------------------------------------------------------------------------


class PlanCloud(Message):
    """Ask what is wanted: `plan_cloud`, which reads the cloud (zones, reservations, cards) and checks that it would succeed (preflight)."""

    account: CloudAccount
    manifest: dict[str, Any]
    classes: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    known: dict[Id, Facts] = Field(default_factory=dict)


class CloudPlan(Message):
    """What is wanted, in the order of creation; `account` with what was pinned. With `refused` at no pool there are no objects.

    The numbers are settings of the worker, because workflow code reads none: `provision.driftInterval`, `quotaRetry`, `capacityRetry`,
    `maxParallel`, `poolDrainWait`, `brokenRebuilds` and `auditRounds`.
    """

    account: CloudAccount
    cloud_cluster: Id = ""
    objects: Annotated[list[CloudObject], Field(max_length=OBJECTS_MAX)] = Field(default_factory=list)
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
    """Work on one object: `ensure_cloud_object` and `delete_cloud_object`. `known` are the facts of all objects that are there, by key.

    `again`: it was worked on before in this epoch, and may have been created without that being known. Without `create`, one that is not
    there stays so.
    """

    account: CloudAccount
    object: CloudObject
    known: dict[Id, Facts] = Field(default_factory=dict)
    epoch: int = 0
    again: bool = False
    create: bool = True


class CloudObjectResult(Message):
    """An object that is Ready, Broken or Absent, with its facts. `message` is in the cloud's words.

    `cause` is the type of the error to report of one that is Broken, also when it was built again.
    """

    key: Id
    phase: ObjectPhase
    facts: Facts = Field(default_factory=dict)
    cause: Id = ""
    message: Text = ""


class ObserveCloud(Message):
    """Look at all objects of an inventory: `observe_cloud`, which changes nothing."""

    account: CloudAccount
    objects: Annotated[list[CloudObject], Field(max_length=OBJECTS_MAX)]
    known: dict[Id, Facts] = Field(default_factory=dict)


class CloudObserved(Message):
    """What `observe_cloud` found, by key."""

    objects: list[CloudObjectShown] = Field(default_factory=list)
    facts: dict[Id, Facts] = Field(default_factory=dict)


class AuditCloud(Message):
    """Look for what is left of a cluster: `audit_cloud`. With `sweep`, what the cluster made and nobody else needs is deleted too.

    `keys` are those of the inventory: what has our mark and another key is of an inventory that was lost, and is swept like the rest.
    `emptied`: users had no load balancers in the cluster any more, so that those which are left are of nobody.
    """

    account: CloudAccount
    cloud_cluster: Id = ""
    known: dict[Id, Facts] = Field(default_factory=dict)
    keys: Annotated[list[Id], Field(max_length=OBJECTS_MAX)] = Field(default_factory=list)
    sweep: bool = False
    emptied: bool = False


class Leftover(Message):
    """Something that is left: its kind and id at the cloud, why it is thought to belong to the cluster, and what it holds up."""

    kind: Id
    id: Id
    evidence: Text = ""
    ours: bool = False
    key: Id = ""
    link: Text = ""


class CloudAudit(Message):
    """What is left; nothing if the cloud is clean. `swept` was deleted now. `more` is how many are left that are not listed."""

    leftovers: Annotated[list[Leftover], Field(max_length=LEFTOVERS_MAX)] = Field(default_factory=list)
    swept: Annotated[list[Leftover], Field(max_length=LEFTOVERS_MAX)] = Field(default_factory=list)
    more: int = 0
