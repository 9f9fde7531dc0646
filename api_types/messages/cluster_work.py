"""Input and output of the activities that work on clusters: connect, watch, apply, prune and tear down."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from api_types.base import Id, Message, Name, SentAt, Text
from api_types.limits import STORAGE_CLASSES_MAX
from api_types.messages.clouds import CloudAccount
from api_types.pins import apiversions
from api_types.queues import base_queue_problem

# The facts that rendering reads.
_RENDERED_FROM = ("dra_version", "routing", "scheduler_type", "mesh_provider", "drivers", "pod_policies")
# No operator means a longer time than this; added to the present it might leave the calendar.
_YEAR_SECONDS = 366 * 24 * 3600


def _base_queue(name: str) -> str:
    if name and (problem := base_queue_problem(name)):
        raise ValueError(problem)
    return name


def _within_a_year(seconds: int) -> int:
    return min(max(0, seconds), _YEAR_SECONDS)


Seconds = Annotated[int, AfterValidator(_within_a_year)]
"""A time to wait, which the receiver adds to the present."""


StorageClasses = Annotated[dict[Name, bool], Field(max_length=STORAGE_CLASSES_MAX)]
"""StorageClasses by name, and whether they allow volume expansion."""


class Identity(Message):
    """The key of a Secret in `modelplane-system` with the credential of a cloud, as whom the worker uses a cluster that exists there."""

    name: Id
    key: Id = "private_key"
    type: Literal["GoogleApplicationCredentials", "AWSWebIdentityCredentials"]


class Connection(Message):
    """How to reach a cluster: a reference into the secret store, never the secret.

    It names a kubeconfig; with `identity` that is used without its user. With `cloud` it names the credential for the cloud that the
    cluster is at, which gives its endpoint and tokens.
    """

    cluster: Id
    namespace: Id
    name: Id
    key: Id = "kubeconfig"
    cloud: CloudAccount | None = None
    identity: Identity | None = None
    task_queue: Annotated[str, AfterValidator(_base_queue)] = ""


class ClusterFacts(Message):
    """What was found out about a connected cluster, and the settings that apply to replicas on it.

    `drivers` maps each device class of the cluster's pools to the DRA driver behind it, `pod_policies` each pool whose class has a
    `podPolicy` to that. `storage_classes` says of each StorageClass whether its volumes can be expanded; None while that is not known.
    Settings come from the worker that connected, because workflow code reads none: `withdraw_after_seconds` is
    `cluster.unreachableAfter`, `drain_seconds` is `teardown.drainSeconds`, `gateway_scheme` is `gateway.scheme`, `renderer` a hash over
    the version of its renderer and the settings of that. `control_cluster` is the reference `controlCluster`, empty if there is none.
    """

    kubernetes_version: Id = ""
    dra_version: Id = ""
    routing: Id = "pool"
    scheduler_type: Id = "none"
    mesh_provider: Id = "none"
    storage_class_name: Id = ""
    gateway_address: Id = ""
    gateway_message: Text = ""
    apis: list[str] = Field(default_factory=list)
    drivers: dict[str, str] = Field(default_factory=dict)
    pod_policies: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    storage_classes: StorageClasses | None = None
    withdraw_after_seconds: Seconds = 300
    drain_seconds: Seconds = 15
    cache_attempts_max: int = 0
    cache_evict_grace_seconds: Seconds = 600
    gateway_scheme: Id = "http"
    renderer: Id = ""
    control_cluster: Id = ""

    def rendered_from(self) -> dict[str, Any]:
        """Give what decides about rendered objects: no patch release, and of served APIs only those that are rendered."""
        release = ".".join(self.kubernetes_version.split(".")[:2])
        served = [api for api in self.apis if api in apiversions.RENDERED]
        found = {"kubernetes_version": release, "apis": served, "storage_classes": self.storage_classes and sorted(self.storage_classes)}
        return {**self.model_dump(include=set(_RENDERED_FROM)), **found}


class Connect(Message):
    """Try a connection and find out what the cluster serves; which rights are needed depends on its capacity adapter and its scheduler."""

    connection: Connection
    capacity_adapter: str = "none"
    scheduler_type: str = "none"


class AwaitConnection(Connect):
    """Wait until an attempt to connect would end in another way than the last one, which failed with this error."""

    failure_type: str
    failure_message: str


class WatchCluster(Message):
    """Watch one connected cluster until cancelled; `number` counts the watches of one InferenceCluster.

    `began` orders them by time, for a workflow that was reset counts once more.
    `tolerations` are those that the `podPolicy` of a class grants to engine pods, by pool.
    """

    connection: Connection
    cluster_uid: str
    number: int = 0
    began: SentAt = 0
    pools: list[str] = Field(default_factory=list)
    capacity_adapter: str = "none"
    tolerations: dict[Name, list[dict[str, Any]]] = Field(default_factory=dict)


class ObjectIdParts(NamedTuple):
    """The id of an object on a cluster, `<apiVersion>/<Kind>/<namespace>/<name>`; the namespace of a cluster-scoped kind is empty."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "ObjectIdParts":
        """Read an id. Raises ValueError."""
        parts = text.rsplit("/", 3)
        if len(parts) != len(cls._fields):
            raise ValueError(f"{text!r} is not the id of an object: <apiVersion>/<Kind>/<namespace>/<name>")
        return cls(*parts)

    @property
    def identity(self) -> tuple[str, ...]:
        """Tell the object from others: one in two versions of its API is the same object."""
        return (self.api_version.rpartition("/")[0], self.kind, self.namespace, self.name)


class ClusterObject(Message):
    """An object on a cluster, by its id (`ObjectIdParts`)."""

    id: str

    @property
    def identity(self) -> tuple[str, ...]:
        """What it is, in whichever version of its API."""
        return ObjectIdParts.parse(self.id).identity

    @property
    def kind(self) -> str:
        """The kind, without its version."""
        return ObjectIdParts.parse(self.id).kind

    @property
    def namespace(self) -> str:
        """The namespace, empty for a cluster-scoped kind."""
        return ObjectIdParts.parse(self.id).namespace

    @property
    def name(self) -> str:
        """The name."""
        return ObjectIdParts.parse(self.id).name


class AppliedObject(ClusterObject):
    """One applied object on a cluster.

    `digest` is empty for a copy that is shared with other replicas: no single replica detects drift of it. The `hash` of a copy is the
    version of its source.
    """

    key: str
    hash: str = ""
    digest: str = ""


class NodeLocal(Message):
    """A volume of its own for each pod, which the pod fills before its engine starts: what fills it, as `spec` of the cache says it."""

    spec: dict[str, Any]
    revision: Id = ""
    storage_class_name: Name
    size_gib: int = Field(ge=1)


class CacheMount(Message):
    """How pods mount what a cache holds, where that is not simply a volume claim for all nodes.

    `access_mode` is that of the volume claim. With an `image`, by its digest, there is no claim: nodes pull it, with `pull_secret`, a
    Secret of the namespace; empty without one. With `node_local` there is no claim for all pods either.
    """

    access_mode: Id = ""
    image: Id = ""
    pull_secret: Name = ""
    node_local: NodeLocal | None = None


class ApplyReplica(Message):
    """Render and apply one replica.

    `cache_claim` is the volume claim of its cache that is ready on the cluster, of `cache_gib` GiB, `adapter_claims` those of its LoRA
    adapters, by cache; `mounts` says by cache how these are mounted, where that is not as usual. `picker_flags` are extra flags of its
    endpoint picker. `adoption` allows to replace pods although the spec that they are made from is the same; without it they stay as they
    are. `wait_seconds` is for objects that are deleted, as in `RunTeardownStep`. `search`: `inventory` may be incomplete, because an
    earlier run or an interrupted apply wrote more; what is found by its labels joins it.
    `renderer`, for pruning: that of the last apply, as in `Applied`. `recreated` names engines whose workload is deleted and created
    anew if its pods change, because old and new copies beside each other may need more devices than are reserved.
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
    cache_gib: int = 0
    adapter_claims: dict[str, str] = Field(default_factory=dict)
    mounts: dict[Name, CacheMount] = Field(default_factory=dict)
    picker_flags: dict[str, str] = Field(default_factory=dict)
    adoption: bool = False
    inventory: list[AppliedObject] = Field(default_factory=list)
    search: bool = False
    renderer: Id = ""
    recreated: list[Name] = Field(default_factory=list)
    wait_seconds: float = Field(default=0, alias="patienceSeconds")


class AppliedEngine(Message):
    """The workload that was applied for an engine. `template_hashes` has one per member, the serving one (`template_hash`) first."""

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
    """The result of an apply: the whole inventory, whether anything changed, and warnings.

    `held`: why the engine workloads were left out for now (`WaitingForCache`); empty if they were not. `connector` and `decode_port` are
    those of a PrefillDecode replica. `picker_guards`: the gateway refuses requests while the endpoint picker does not answer.
    `overwritten`: fields that others had written since the apply before, and by which field manager. `pending` are the inventory keys of
    workloads whose pods would be other ones, and stay; `pending_causes` says why, and `adopting` whether the deployment shall replace them
    without being told to. `inputs_hash` is over all that was rendered from besides the spec. `renderer` is that of the worker that applied,
    as in `ClusterFacts`.
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
    pending: list[str] = Field(default_factory=list)
    pending_causes: list[str] = Field(default_factory=list)
    adopting: bool = False
    inputs_hash: str = ""
    renderer: Id = ""
    overwritten: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


class RunTeardownStep(Message):
    """One step of an ordered teardown.

    `workload_namespace` is empty if nothing is known that was applied. `wait_seconds`: after this time the result lists what remains (0:
    return only when nothing does). `skipped`: ids of objects that are no longer waited for.
    """

    connection: Connection
    facts: ClusterFacts
    namespace: str = ""
    uid: str
    workload_name: str
    workload_namespace: str
    number: int
    inventory: list[AppliedObject] = Field(default_factory=list)
    wait_seconds: float = Field(default=0, alias="patienceSeconds")
    skipped: list[str] = Field(default_factory=list, alias="givenUp")


class RemainingObject(ClusterObject):
    """An object that should be deleted and still exists. `why`: what blocks it, such as a finalizer."""

    why: Text = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}".replace(" /", " ") + (f" ({self.why})" if self.why else "")


class TeardownStepResult(Message):
    """What a teardown step skipped on purpose, such as objects of another owner, and what remains of the rest: nothing if it is done."""

    skipped: list[Text] = Field(default_factory=list)
    remaining: list[RemainingObject] = Field(default_factory=list)


class PruneResult(Message):
    """The result of pruning: ids of objects that are gone or belong to another owner, and what remains of the others."""

    removed: list[str] = Field(default_factory=list)
    remaining: list[RemainingObject] = Field(default_factory=list)


class EmptyCluster(Message):
    """Delete what holds things at the cloud from within a cluster that goes too: `empty_cluster`, only for one at a cloud.

    `wait_seconds`: after this time the result lists what remains. `force` gives up the whole step, and no single object.
    """

    connection: Connection
    wait_seconds: float = 0
