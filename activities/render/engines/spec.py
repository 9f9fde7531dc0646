"""The typed and checked form of a ModelReplica spec that rendering uses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api_types.engines.profiles import CUSTOM_PROFILE, EngineProfile

UNIFIED = "Unified"
PREFILL_DECODE = "PrefillDecode"
PREFILL = "Prefill"
DECODE = "Decode"
STANDALONE = "Standalone"
LEADER = "Leader"
WORKER = "Worker"


@dataclass(frozen=True)
class DeviceRequestSpec:
    """Devices of one kind for each pod.

    They are claimed by DRA (`device_class`, CEL texts) or come from a device plugin
    (`resource_name`). Slots have neither, and only the scheduler counts them.
    """

    name: str
    count: int
    device_class: str = ""
    resource_name: str = ""
    selectors: tuple[str, ...] = ()


@dataclass(frozen=True)
class LivenessSpec:
    """The interval of liveness probes, and the number of failures that end an engine."""

    period_seconds: int
    timeout_seconds: int
    failure_threshold: int


@dataclass(frozen=True)
class ProbesSpec:
    """The probes that a member requests.

    If `startup_seconds` is 0, the time limit is that of a setting, or depends on the
    size of the model.
    """

    startup_seconds: int = 0
    liveness: LivenessSpec | None = None


@dataclass(frozen=True)
class MemberSpec:
    """One role of an engine. `nodes` is the number of Worker pods per copy.

    `follower_serves` means that requests reach the pods of a Worker too.
    """

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
    requests: tuple[DeviceRequestSpec, ...]
    probes: ProbesSpec | None = None
    follower_serves: bool = False

    @property
    def claims(self) -> tuple[DeviceRequestSpec, ...]:
        """The requests that go through a ResourceClaim."""
        return tuple(request for request in self.requests if request.device_class)

    @property
    def variables(self) -> Mapping[str, str | None]:
        """The environment; None is a value from another object."""
        return {
            str(variable["name"]): None
            if variable.get("valueFrom")
            else str(variable.get("value") or "")
            for variable in self.env
            if "name" in variable
        }

    @property
    def serves(self) -> bool:
        """True if requests reach this member's pods."""
        return self.role != WORKER or self.follower_serves


@dataclass(frozen=True)
class DrainSpec:
    """How pods stop.

    They continue to serve for `pre_stop_seconds` and are killed after `grace_seconds`.
    0 means the sleep plus the platform's default.
    """

    pre_stop_seconds: int = 0
    grace_seconds: int = 0


@dataclass(frozen=True)
class Domain:
    """Nodes with the same value of a label.

    All pods of a copy run in one such domain. `topology_name` is for KAI.
    """

    node_label: str
    mode: str
    exclusive: bool = False
    topology_name: str = ""


@dataclass(frozen=True)
class DeviceConstraintSpec:
    """An attribute that must be equal for the devices of some requests of a pod.

    Empty `requests` means all requests.
    """

    attribute: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComputeDomainSpec:
    """GPU memory that the nodes of an engine share. `channels` is `Single` or `All`."""

    channels: str


@dataclass(frozen=True)
class TopologySpec:
    """The placement of the pods of a copy and the devices of a pod."""

    domain: Domain | None = None
    constraints: tuple[DeviceConstraintSpec, ...] = ()
    compute_domain: ComputeDomainSpec | None = None


@dataclass(frozen=True)
class AdapterSpec:
    """A LoRA adapter and the name of its ModelCache.

    With `vllm` the flags of vLLM that load the adapter are added. `model_names` are its
    public names.
    """

    name: str
    cache: str
    vllm: bool = False
    model_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class FlowControlSpec:
    """How requests wait in the endpoint picker.

    0 means no limit, or the picker's default.
    """

    max_requests: int = 0
    queue_seconds: int = 0


@dataclass(frozen=True)
class PreciseCache:
    """How the endpoint picker learns which prefixes pods have cached.

    `model` and `tokenizer_url` locate the tokenizer; `port` is the port of the events.
    """

    model: str
    tokenizer_url: str
    port: int


@dataclass(frozen=True)
class EngineSpec:
    """One serving unit: a Standalone member, or a Leader with its Workers.

    `ranks` is the number of ports of each serving pod.
    """

    name: str
    copies: int
    phase: str
    members: tuple[MemberSpec, ...]
    drain: DrainSpec = DrainSpec()
    topology: TopologySpec = TopologySpec()
    adapters: tuple[AdapterSpec, ...] = ()
    ranks: int = 1
    profile: EngineProfile = CUSTOM_PROFILE

    @property
    def gang(self) -> bool:
        """True if a copy is a group of pods."""
        return len(self.members) > 1

    @property
    def server(self) -> MemberSpec:
        """The member whose program defines the engine: the Standalone or the Leader."""
        return next(member for member in self.members if member.role != WORKER)

    @property
    def size(self) -> int:
        """The number of pods per copy."""
        return sum(member.nodes for member in self.members)


@dataclass(frozen=True)
class ReplicaSpec:
    """The checked spec.

    `cache` is the name of the ModelCache, or empty. `min_available` is the number or
    percentage of the copies of each engine that evictions leave.
    """

    mode: str
    cache: str
    engines: tuple[EngineSpec, ...]
    min_available: int | str = 0
    flow_control: FlowControlSpec | None = None
    precise_cache: PreciseCache | None = None

    @property
    def disaggregated(self) -> bool:
        """True if prefill and decode are separate engines."""
        return self.mode == PREFILL_DECODE

    def phase(self, phase: str) -> EngineSpec:
        """Return the only engine of a phase."""
        return next(engine for engine in self.engines if engine.phase == phase)

    @property
    def in_apply_order(self) -> tuple[EngineSpec, ...]:
        """The engines in the order of apply.

        Teardown runs in reverse order, and so deletes decode before prefill.
        """
        return tuple(sorted(self.engines, key=lambda engine: engine.phase == DECODE))

    @property
    def picker_engine(self) -> EngineSpec:
        """The engine whose flags configure the picker: decode, or the first one."""
        return self.phase(DECODE) if self.disaggregated else self.engines[0]
