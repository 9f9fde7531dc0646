"""A ModelReplica as rendering needs it: engines, members, containers, in typed and checked form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNIFIED = "Unified"
PREFILL_DECODE = "PrefillDecode"
PREFILL = "Prefill"
DECODE = "Decode"
STANDALONE = "Standalone"
LEADER = "Leader"
WORKER = "Worker"


@dataclass(frozen=True)
class DeviceRequest:
    """Devices of one kind for each pod: by DRA (`device_class`, CEL texts) or from a device plugin (`resource_name`)."""

    name: str
    count: int
    device_class: str = ""
    resource_name: str = ""
    selectors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Liveness:
    """How often a loaded engine is asked, and how many missing answers in a row end it."""

    period_seconds: int
    timeout_seconds: int
    failure_threshold: int


@dataclass(frozen=True)
class Probes:
    """The probes that a member asks for. `startup_seconds` 0: from a setting, or from the size of the model."""

    startup_seconds: int = 0
    liveness: Liveness | None = None


@dataclass(frozen=True)
class Member:
    """One role of an engine: what its pods run and where. `nodes` counts the pods of a Worker per copy."""

    role: str
    pool: str
    nodes: int
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[Mapping[str, Any], ...]
    pull_secrets: tuple[str, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    requests: tuple[DeviceRequest, ...]
    probes: Probes | None = None

    @property
    def claims(self) -> tuple[DeviceRequest, ...]:
        """The requests that go through a ResourceClaim."""
        return tuple(request for request in self.requests if request.device_class)

    @property
    def serves(self) -> bool:
        """Whether requests reach this member's pods."""
        return self.role != WORKER


@dataclass(frozen=True)
class Drain:
    """How pods stop: first they go on for `pre_stop_seconds`, at `grace_seconds` they are killed (0: the sleep and the platform's time)."""

    pre_stop_seconds: int = 0
    grace_seconds: int = 0


@dataclass(frozen=True)
class Domain:
    """Nodes that share the value of a label, in one of which all pods of a copy are to be. `topology_name` is for KAI."""

    node_label: str
    mode: str
    exclusive: bool = False
    topology_name: str = ""


@dataclass(frozen=True)
class DeviceConstraint:
    """An attribute in which the devices of some requests of a pod agree; of all its requests if none is named."""

    attribute: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComputeDomain:
    """GPU memory that the nodes of an engine share. `channels`: `Single` or `All`."""

    channels: str


@dataclass(frozen=True)
class Topology:
    """How close together the pods of a copy and the devices of a pod are."""

    domain: Domain | None = None
    constraints: tuple[DeviceConstraint, ...] = ()
    compute_domain: ComputeDomain | None = None


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter and the name of its ModelCache. `vllm`: the flags of vLLM that load it are added; `model_names`: its public names."""

    name: str
    cache: str
    vllm: bool = False
    model_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class FlowControl:
    """How requests wait in the endpoint picker; 0 is no limit, or the picker's own."""

    max_requests: int = 0
    queue_seconds: int = 0


@dataclass(frozen=True)
class PreciseCache:
    """Where the endpoint picker learns what pods have cached: the name of the model, its tokenizer, and the port of the events."""

    model: str
    tokenizer_url: str
    port: int


@dataclass(frozen=True)
class Engine:
    """One serving unit: a Standalone member, or a Leader with its Workers."""

    name: str
    copies: int
    phase: str
    members: tuple[Member, ...]
    drain: Drain = Drain()
    topology: Topology = Topology()
    adapters: tuple[Adapter, ...] = ()
    ranks: int = 1

    @property
    def gang(self) -> bool:
        """Whether a copy is a group of pods."""
        return len(self.members) > 1

    @property
    def server(self) -> Member:
        """The member that requests reach."""
        return next(member for member in self.members if member.serves)

    @property
    def size(self) -> int:
        """Pods per copy."""
        return sum(member.nodes for member in self.members)


@dataclass(frozen=True)
class ReplicaSpec:
    """The checked spec. `cache` is the name of the ModelCache, empty without one; `min_available`: what evictions leave of each engine."""

    mode: str
    cache: str
    engines: tuple[Engine, ...]
    min_available: int | str = 0
    flow_control: FlowControl | None = None
    precise_cache: PreciseCache | None = None

    @property
    def disaggregated(self) -> bool:
        """Whether prefill and decode are separate engines."""
        return self.mode == PREFILL_DECODE

    def phase(self, phase: str) -> Engine:
        """Give the one engine of a phase."""
        return next(engine for engine in self.engines if engine.phase == phase)

    @property
    def in_apply_order(self) -> tuple[Engine, ...]:
        """The engines in the order of apply; teardown runs in reverse and so deletes decode before prefill."""
        return tuple(sorted(self.engines, key=lambda engine: engine.phase == DECODE))

    @property
    def picker_engine(self) -> Engine:
        """The engine whose flags shape the picker: decode, or the first one."""
        return self.phase(DECODE) if self.disaggregated else self.engines[0]
