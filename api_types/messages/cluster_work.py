"""Input and output of the activities that work on clusters.

The activities connect, watch, apply, prune and tear down.
"""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from api_types.base import Id, Message, Name, SentAt, Text
from api_types.limits import DEVICE_CLASSES_MAX, STORAGE_CLASSES_MAX
from api_types.messages.clouds import CloudAccount
from api_types.pins import apiversions
from api_types.queues import base_queue_problem

# The facts that rendering uses.
_RENDERED_FROM = (
    "dra_version",
    "routing",
    "scheduler_type",
    "mesh_provider",
    "drivers",
    "pod_policies",
)
# No operator configures a longer time. If the receiver added a longer time to the
# current one, the result might not be a valid date.
_YEAR_SECONDS = 366 * 24 * 3600


def _base_queue(name: str) -> str:
    problem = base_queue_problem(name) if name else ""
    if problem:
        raise ValueError(problem)
    return name


def _within_a_year(seconds: int) -> int:
    return min(max(0, seconds), _YEAR_SECONDS)


Seconds = Annotated[int, AfterValidator(_within_a_year)]
"""A duration, which the receiver adds to the current time."""


StorageClasses = Annotated[dict[Name, bool], Field(max_length=STORAGE_CLASSES_MAX)]
"""StorageClasses by name, and whether they allow volume expansion."""


class Identity(Message):
    """A key of a Secret in `modelplane-system` with a cloud credential.

    The worker uses this credential to authenticate to an existing cluster.
    """

    name: Id
    key: Id = "private_key"
    type: Literal["GoogleApplicationCredentials", "AWSWebIdentityCredentials"]


class Connection(Message):
    """A cluster's connection: a reference into the secret store, never the secret.

    The reference names a kubeconfig. With `identity`, the user of the kubeconfig is
    ignored. With `cloud`, the reference names the credential for the cloud, which
    provides the endpoint and tokens.
    """

    cluster: Id
    namespace: Id
    name: Id
    key: Id = "kubeconfig"
    cloud: CloudAccount | None = None
    identity: Identity | None = None
    task_queue: Annotated[str, AfterValidator(_base_queue)] = ""


class ClusterFacts(Message):
    """Properties of a connected cluster, and the settings for replicas on it.

    `drivers` maps each device class of the cluster's pools to its DRA driver.
    `pod_policies` maps each pool to the `podPolicy` of its class, if there is one.
    `missing_features` are the keys of the features that the cluster certainly lacks
    (`api_types/pins/features.py`). `device_classes` are the names of its DeviceClasses;
    None if they are unknown.
    `storage_classes` is None until it is known. Settings come from the worker that
    connected, because workflow code cannot read them: `withdraw_after_seconds` is
    `cluster.unreachableAfter`, `drain_seconds` is `teardown.drainSeconds`, and
    `gateway_scheme` is `gateway.scheme`. `renderer` is a hash of the version and the
    settings of the worker's renderer. `control_cluster` is the reference
    `controlCluster`, empty without a control cluster.
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
    missing_features: list[Name] = Field(default_factory=list)
    device_classes: (
        Annotated[list[Name], Field(max_length=DEVICE_CLASSES_MAX)] | None
    ) = None
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
        """Return the properties that rendered objects depend on.

        The result excludes the patch release, and served APIs that rendering does not
        use.
        """
        release = ".".join(self.kubernetes_version.split(".")[:2])
        served = [api for api in self.apis if api in apiversions.RENDERED]
        found = {
            "kubernetes_version": release,
            "apis": served,
            "storage_classes": self.storage_classes and sorted(self.storage_classes),
        }
        if self.missing_features:
            found["missing_features"] = sorted(self.missing_features)
        return {**self.model_dump(include=set(_RENDERED_FROM)), **found}


class Connect(Message):
    """Connect to a cluster and discover its APIs.

    The capacity adapter and the scheduler determine the required permissions.
    """

    connection: Connection
    capacity_adapter: str = "none"
    scheduler_type: str = "none"


class AwaitConnection(Connect):
    """Wait until an attempt to connect succeeds or fails with another error."""

    failure_type: str
    failure_message: str


class WatchCluster(Message):
    """Watch a connected cluster until cancelled.

    `number` counts the watches of one InferenceCluster. `began` orders them by time,
    because a workflow that was reset repeats earlier numbers. `tolerations` are the
    tolerations that the `podPolicy` of a class adds to engine pods, by pool.
    `gateway_address` is the address at which the gateway answered to an earlier watch,
    or "".
    """

    connection: Connection
    cluster_uid: str
    number: int = 0
    began: SentAt = 0
    pools: list[str] = Field(default_factory=list)
    capacity_adapter: str = "none"
    tolerations: dict[Name, list[dict[str, Any]]] = Field(default_factory=dict)
    gateway_address: Id = ""


class ObjectIdParts(NamedTuple):
    """The id of an object on a cluster: `<apiVersion>/<Kind>/<namespace>/<name>`.

    The namespace of a cluster-scoped kind is empty.
    """

    api_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "ObjectIdParts":
        """Parse an id.

        Raises:
            ValueError: the text is not an id.

        """
        parts = text.rsplit("/", 3)
        if len(parts) != len(cls._fields):
            raise ValueError(
                f"{text!r} is not the id of an object: <apiVersion>/<Kind>/<namespace>/<name>"
            )
        return cls(*parts)

    @property
    def identity(self) -> tuple[str, ...]:
        """The object in any version of its API."""
        return (
            self.api_version.rpartition("/")[0],
            self.kind,
            self.namespace,
            self.name,
        )


class ClusterObject(Message):
    """An object on a cluster, by its id (`ObjectIdParts`)."""

    id: str

    @property
    def identity(self) -> tuple[str, ...]:
        """The object in any version of its API."""
        return ObjectIdParts.parse(self.id).identity

    @property
    def kind(self) -> str:
        return ObjectIdParts.parse(self.id).kind

    @property
    def namespace(self) -> str:
        """The namespace, empty for a cluster-scoped kind."""
        return ObjectIdParts.parse(self.id).namespace

    @property
    def name(self) -> str:
        return ObjectIdParts.parse(self.id).name


class AppliedObject(ClusterObject):
    """One applied object on a cluster.

    `digest` is empty for a copy that is shared with other replicas, because no single
    replica detects its drift, and for an object that is no longer rendered. The `hash`
    of a copy is the version of its source.
    """

    key: str
    hash: str = ""
    digest: str = ""


class NodeLocal(Message):
    """A separate volume for each pod, which the pod fills before its engine starts.

    `spec` is the part of the cache's spec that describes the source.
    """

    spec: dict[str, Any]
    revision: Id = ""
    storage_class_name: Name
    size_gib: int = Field(ge=1)


class CacheMount(Message):
    """How pods mount a cache that is not one volume claim for all nodes.

    `access_mode` is the access mode of the volume claim. With an `image`, referenced by
    digest, there is no claim: nodes pull the image with `pull_secret`, an optional
    Secret of the namespace. With `node_local` there is no shared claim either.
    """

    access_mode: Id = ""
    image: Id = ""
    pull_secret: Name = ""
    node_local: NodeLocal | None = None


class ApplyReplica(Message):
    """Render and apply one replica.

    - `cache_claim`: the ready volume claim of its cache on the cluster, of `cache_gib`
      GiB.
    - `adapter_claims`: the claims of its LoRA adapters, by cache.
    - `mounts`: the caches that are not mounted as one claim for all nodes.
    - `picker_flags`: extra flags of its endpoint picker.
    - `adoption`: replace pods even if the part of the spec that they are rendered from
      is unchanged. Without it, such pods are kept.
    - `inventory`: the known objects. With `search` it may be incomplete, because an
      earlier run or an interrupted apply wrote more objects. The activity then adds
      objects that it finds by label.
    - `renderer`: the renderer of the last apply, as in `Applied`, for pruning.
    - `recreated`: engines whose workload is deleted and created again if its pods
      change, because old and new copies together may need more devices than are
      reserved.
    - `wait_seconds`: the time limit for deleted objects, as in `RunTeardownStep`.
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
    wait_seconds: float = 0


class AppliedEngine(Message):
    """The applied workload of an engine.

    `template_hashes` has one hash per member, the serving member first. `template_hash`
    is the first of them.
    """

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
    """The result of an apply: the whole inventory, changes and warnings.

    - `held`: the reason why engine workloads were omitted for now (`WaitingForCache`),
      or empty.
    - `connector`, `decode_port`: the KV connector and the port of the decode engine.
      They are set for PrefillDecode only.
    - `picker_guards`: the gateway answers 500 to every request while no endpoint picker
      is ready.
    - `overwritten`: fields that other managers have written since the last apply, with
      their manager.
    - `pending`: the inventory keys of workloads whose outdated pods are kept.
    - `pending_causes`: the reasons why these pods are outdated.
    - `adopting`: the deployment must replace these pods without a request by the user.
    - `inputs_hash`: covers all input of rendering except the spec.
    - `renderer`: the renderer of the worker that applied, as in `ClusterFacts`.
    - `has_obsolete`: the inventory has objects that are no longer rendered.
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
    has_obsolete: bool = False


class RunTeardownStep(Message):
    """Run one step of an ordered teardown.

    `workload_namespace` is empty if no applied object is known. After `wait_seconds`
    the result lists the remaining objects; with 0, the step returns only when none
    remains. `skipped` are ids of objects that the step no longer waits for.
    """

    connection: Connection
    facts: ClusterFacts
    namespace: str
    uid: str
    workload_name: str
    workload_namespace: str
    number: int
    inventory: list[AppliedObject] = Field(default_factory=list)
    wait_seconds: float = 0
    skipped: list[str] = Field(default_factory=list)


class RemainingObject(ClusterObject):
    """A deleted object that still exists. `why` is the reason, such as a finalizer."""

    why: Text = ""

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        why = f" ({self.why})" if self.why else ""
        return f"{self.kind} {name}{why}"


class TeardownStepResult(Message):
    """The result of a teardown step.

    `skipped` are objects that it left on purpose, such as objects of another owner.
    `remaining` are objects that still exist; the step is done if there are none.
    """

    skipped: list[Text] = Field(default_factory=list)
    remaining: list[RemainingObject] = Field(default_factory=list)


class PruneResult(Message):
    """The result of pruning.

    `removed` are ids of objects that are gone or belong to another owner. `remaining`
    are the others, which still exist.
    """

    removed: list[str] = Field(default_factory=list)
    remaining: list[RemainingObject] = Field(default_factory=list)


class EmptyCluster(Message):
    """Delete objects inside a cloud cluster that would keep cloud objects alive.

    The activity is `empty_cluster`. It runs only if the cluster itself is deleted as
    well. After `wait_seconds` the result lists the remaining objects. A deletion with
    `force` skips the whole step, not a single object.
    """

    connection: Connection
    wait_seconds: float = 0
