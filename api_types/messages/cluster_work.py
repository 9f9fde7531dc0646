"""What workflows order of the activities that work on clusters, and what these answer."""

from typing import Any

from pydantic import Field

from api_types.base import Message


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
