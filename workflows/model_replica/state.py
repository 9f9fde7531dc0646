"""All that a ModelReplica knows; continue-as-new carries it whole.

Field names on the wire are older than some names here: those have an alias, so that a run of an older worker can be continued.
"""

from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from api_types.digests import short_hash
from api_types.messages.caches import CacheReport
from api_types.messages.cluster_work import Applied, CacheMount
from api_types.messages.entities import ClusterChanged, StartReplica
from api_types.messages.observations import ObservedReplica
from api_types.messages.versions import ObservationVersion, Version
from api_types.resources.parts.referenced_caches import model_cache
from api_types.resources.replica_spec import EngineSize, pods_source
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.entity.registering.endpoint import PublishedEndpoint
from workflows.entity.state import EntityState, none_if_empty
from workflows.model_replica.teardown_progress import TeardownProgress


class ApplyInputs(NamedTuple):
    """What an apply takes from outside the spec, and must follow.

    `facts` is a hash over what rendering reads of the cluster, and over the renderer; `adoption` is that of `SetTemplate`.
    """

    cache_claim: str
    picker_flags: dict[str, str]
    adapter_claims: dict[str, str] | None = None
    facts: str = ""
    adoption: int = 0
    mounts: dict[str, CacheMount] | None = None


class ReplicaReport(BaseModel):
    """What the deployment must know of a replica; without a phase nothing was reported."""

    model_config = ConfigDict(frozen=True)

    ready: bool = False
    serving: bool = False
    endpoint: str = ""
    phase: str = ""
    generation: int = 0
    message: str = ""
    pending: str = ""
    adopting: bool = False
    adoption: int = 0


class FirstStart(BaseModel):
    """The argument with which a deployment starts a replica. More than this is only known to a run that continues another one."""

    model_config = ConfigDict(frozen=True)

    start: StartReplica = Field(alias="birth")


class AdapterCache(BaseModel):
    """How a replica follows the cache of an adapter: as the fields of these names of its state do."""

    cache: CacheReport | None = None
    cache_registered: str = ""
    cache_claim: str = ""
    cache_mount: CacheMount | None = None
    cache_gib: int = 0
    cache_mounted: list[str] = Field(default_factory=list)


class ModelReplicaState(EntityState):
    """What a replica carries from run to run.

    Attributes:
        start: the identity and first template with which it was started. `template_sequence`: number of the newest template or labels.
        entry: its ledger entry, kept for a scheduler that lost its state.
        surface: how requests reach it (`pool` or `service`), fixed by the first apply, whatever the cluster reports later.
        cluster: the last report of its cluster, with what is kept of earlier ones; `cluster_version`: that of the report. `facts_uid`: the
            uid of the InferenceCluster that the kept connection and facts are of. `cluster_doubted`: a report came of what may be an
            earlier cluster.
        cache: the last report of its cache; `cache_registered`: the name of the cache at which it is registered.
        cache_claim: the volume claim of its cache that is ready on the cluster, and `cache_gib` its size; kept when the cache is lost.
        cache_mount: how that claim is mounted, None for as usual.
        cache_mounted: the claims that its pods may mount, as last reported to the cache.
        adapters: how it follows the caches of its adapters, by name.
        picker_flags: extra flags of its endpoint picker.
        adoption: the highest one that its deployment has sent: pods may be replaced once although their spec is the same.
        applied_inputs: what came from outside the spec into the last apply; None before the first one.
        applied_mode: how the engines shared the work then; `applied_sources`: a hash over what pods were made from, by engine;
            `applied_sizes`: the copies and devices of each engine.
        drain_until: an apply that ends all pods of an engine waits until then for requests to end; empty while none does.
        routes_until: how long such applies wait for routes that still have the endpoint; empty when none has it, or one has succeeded.
        drift_since: since when the present drift persists; `drift_repairs`: the repairs that followed one another so far, the last one at
            `drift_repaired_at`.
        copies_due: since when copies of Secrets have to be compared with their sources; empty: they have not.
        rendered_otherwise: applies that followed one another by workers that render otherwise than that of the cluster's facts; the next
            one is due at `render_at`.
        observed: the last observation; `observed_version`: that of the observation.
        prune: something of an older generation may still be there; deleted at `prune_at`, after `prune_attempts` attempts in vain.
        overdue: engines whose progress deadline has passed.
        apply_started: objects of this replica may be on the cluster; `inventory_complete`: the last apply was not interrupted.
        reported: the last report to the deployment; an empty one if it has to be repeated.
        endpoint: how far its endpoint is published on the control cluster.

    """

    start: StartReplica = Field(alias="birth")
    entry: dict[str, Any] = Field(default_factory=dict)
    template_sequence: int = 0
    cluster: ClusterChanged | None = None
    cluster_version: Version = Field(default_factory=Version)
    facts_uid: str = ""
    cluster_doubted: bool = False
    applied: Applied | None = None
    applied_generation: int = 0
    surface: str = ""
    cache: CacheReport | None = None
    cache_registered: str = ""
    cache_claim: str = ""
    cache_mount: CacheMount | None = None
    cache_gib: int = 0
    cache_mounted: list[str] = Field(default_factory=list)
    adapters: dict[str, AdapterCache] = Field(default_factory=dict)
    picker_flags: dict[str, str] = Field(default_factory=dict)
    adoption: int = 0
    applied_inputs: Annotated[ApplyInputs | None, BeforeValidator(none_if_empty)] = None
    applied_mode: str = ""
    applied_sources: dict[str, str] = Field(default_factory=dict)
    applied_sizes: dict[str, EngineSize] = Field(default_factory=dict)
    drain_until: str = ""
    routes_until: str = ""
    copies_due: str = ""
    rendered_otherwise: int = 0
    render_at: str = ""
    overdue: list[str] = Field(default_factory=list)
    apply_started: bool = Field(default=False, alias="attempted")
    inventory_complete: bool = Field(default=False, alias="whole")
    failure: Failure = NO_FAILURE
    failure_reason: str = ""
    retry_at: str = ""
    observed: ObservedReplica | None = None
    observed_version: ObservationVersion = Field(default_factory=ObservationVersion)
    drift_since: str = ""
    drift_repairs: int = 0
    drift_repaired_at: str = ""
    prune: bool = False
    prune_at: str = ""
    prune_attempts: int = Field(default=0, alias="prunes")
    serving: bool = False
    served: bool = False
    was_ready: bool = False
    sequence: int = 0
    reported: ReplicaReport = Field(default_factory=ReplicaReport, alias="told")
    teardown: TeardownProgress = Field(default_factory=TeardownProgress)
    endpoint: PublishedEndpoint = Field(default_factory=PublishedEndpoint)

    def inputs(self) -> ApplyInputs:
        """Give what the next apply takes from outside the spec."""
        facts = self.cluster.facts if self.cluster else None
        seen = short_hash([facts.renderer, facts.rendered_from()]) if facts else ""
        return ApplyInputs(self.cache_claim, self.picker_flags, self.adapter_claims() or None, seen, self.adoption, self.mounts() or None)

    def adapter_claims(self) -> dict[str, str]:
        """Give the volume claims of the adapters' caches that are ready, by cache."""
        return {name: self.adapters[name].cache_claim for name in sorted(self.adapters) if self.adapters[name].cache_claim}

    def pod_sources(self) -> dict[str, str]:
        """Give a hash over what the pods of each engine are made from."""
        spec = self.spec or {}
        return {engine["name"]: short_hash(pods_source(spec, engine)) for engine in spec.get("engines", ())}

    def mounts(self) -> dict[str, CacheMount]:
        """Give by cache how its claim is mounted, where that is not as usual."""
        followed = {
            model_cache(self.spec or {}): self.cache_mount,
            **{name: self.adapters[name].cache_mount for name in sorted(self.adapters)},
        }
        return {name: mount for name, mount in followed.items() if name and mount}

    def mode(self) -> str:
        """Give how the engines share the work."""
        mode: str = (self.spec or {}).get("serving", {}).get("mode", "Unified")
        return mode
