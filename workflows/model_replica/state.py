"""The state of a ModelReplica, which continue-as-new carries completely."""

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from api_types.digests import short_hash
from api_types.messages.caches import CacheReport
from api_types.messages.cluster_work import Applied, CacheMount
from api_types.messages.entities import ClusterChanged, StartReplica
from api_types.messages.observations import ObservedReplica
from api_types.messages.versions import MessageVersion, ObservationVersion
from api_types.resources.parts.referenced_caches import model_cache
from api_types.resources.replica_spec import EngineSize, pods_source
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.entity.registering.endpoint import PublishedEndpoint
from workflows.entity.state import EntityState
from workflows.model_replica.teardown_progress import TeardownProgress


class ApplyInputs(NamedTuple):
    """The inputs of an apply from outside the spec.

    `facts` is a hash of the cluster's facts that rendering reads, and of the renderer;
    `adoption` is the number in `SetTemplate`.
    """

    cache_claim: str
    picker_flags: dict[str, str]
    adapter_claims: dict[str, str] | None = None
    facts: str = ""
    adoption: int = 0
    mounts: dict[str, CacheMount] | None = None


class ReplicaReport(BaseModel):
    """A report to the deployment; without a phase nothing was reported."""

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
    """The argument with which a deployment starts a replica.

    Only continued runs have more.
    """

    model_config = ConfigDict(frozen=True)

    start: StartReplica


class ReplicaAdapterCache(BaseModel):
    """The registration at the cache of an adapter, with the meaning of the state's fields."""

    cache: CacheReport | None = None
    cache_registered: str = ""
    cache_claim: str = ""
    cache_mount: CacheMount | None = None
    cache_gib: int = 0
    cache_mounted: list[str] = Field(default_factory=list)


class ModelReplicaState(EntityState):
    """The state that a replica carries from run to run.

    Attributes:
        start: identity and first template.
        template_sequence: the number of the newest template or labels.
        entry: its ledger entry, kept for a scheduler that lost its state.
        surface: the entry point of requests (`pool` or `service`), fixed by the first
            apply.
        cluster: the last report of its cluster, with kept parts of earlier ones.
        cluster_version: the version of that report.
        facts_uid: the uid of the InferenceCluster that reported the kept connection and
            facts.
        cluster_doubted: a report may be a late one of an earlier cluster.
        cache: the last report of its cache.
        cache_registered: the name of the cache with its registration.
        cache_claim: the ready volume claim of its cache; kept when the cache is lost.
        cache_gib: the size of that claim.
        cache_mount: how to mount that claim; None for the default.
        cache_mounted: the claims that its pods may mount, as last reported to the
            cache.
        adapters: the registrations at the caches of its adapters, by name.
        picker_flags: extra flags of its endpoint picker.
        adoption: the highest adoption of its deployment, which replaces pods with an
            equal spec.
        applied_inputs: the outside inputs of the last apply; None before the first one.
        applied_mode: how the engines shared the work at the last apply.
        applied_sources: a hash of the sources of pods, by engine.
        applied_sizes: the copies and devices of each engine.
        drain_until: how long an apply that ends all pods of an engine waits for
            requests.
        routes_until: how long such applies wait for routes; empty when no route has the
            endpoint.
        drift_since: the start of the present drift.
        drift_repairs: the number of consecutive repairs, the last one at
            `drift_repaired_at`.
        copies_due: the time since which copies of Secrets need a comparison; empty for
            none.
        rendered_otherwise: consecutive applies by workers with another renderer; next
            at `render_at`.
        observed: the last observation; `observed_version`: its version.
        prune: objects of an older generation may remain; next at `prune_at`, after
            `prune_attempts`.
        overdue: engines whose progress deadline has passed.
        apply_started: the cluster may have objects of this replica.
        inventory_complete: the last apply was not interrupted.
        reported: the last report to the deployment; empty if it must be repeated.
        endpoint: the state of its endpoint on the control cluster.

    """

    start: StartReplica
    entry: dict[str, Any] = Field(default_factory=dict)
    template_sequence: int = 0
    cluster: ClusterChanged | None = None
    cluster_version: MessageVersion = Field(default_factory=MessageVersion)
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
    adapters: dict[str, ReplicaAdapterCache] = Field(default_factory=dict)
    picker_flags: dict[str, str] = Field(default_factory=dict)
    adoption: int = 0
    applied_inputs: ApplyInputs | None = None
    applied_mode: str = ""
    applied_sources: dict[str, str] = Field(default_factory=dict)
    applied_sizes: dict[str, EngineSize] = Field(default_factory=dict)
    drain_until: str = ""
    routes_until: str = ""
    copies_due: str = ""
    rendered_otherwise: int = 0
    render_at: str = ""
    overdue: list[str] = Field(default_factory=list)
    apply_started: bool = False
    inventory_complete: bool = False
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
    prune_attempts: int = 0
    serving: bool = False
    served: bool = False
    was_ready: bool = False
    sequence: int = 0
    reported: ReplicaReport = Field(default_factory=ReplicaReport)
    teardown: TeardownProgress = Field(default_factory=TeardownProgress)
    endpoint: PublishedEndpoint = Field(default_factory=PublishedEndpoint)

    @property
    def may_have_objects(self) -> bool:
        """Return whether the teardown can find objects of this or an earlier run."""
        return self.apply_started or self.reset

    def inputs(self) -> ApplyInputs:
        """Return the inputs of the next apply from outside the spec."""
        facts = self.cluster.facts if self.cluster else None
        seen = short_hash([facts.renderer, facts.rendered_from()]) if facts else ""
        return ApplyInputs(
            self.cache_claim,
            self.picker_flags,
            self.adapter_claims() or None,
            seen,
            self.adoption,
            self.mounts() or None,
        )

    def adapter_claims(self) -> dict[str, str]:
        """Return the ready volume claims of the adapters' caches, by cache."""
        return {
            name: self.adapters[name].cache_claim
            for name in sorted(self.adapters)
            if self.adapters[name].cache_claim
        }

    def pod_sources(self) -> dict[str, str]:
        """Return a hash of the sources of each engine's pods."""
        spec = self.spec or {}
        return {
            engine["name"]: short_hash(pods_source(spec, engine))
            for engine in spec.get("engines", ())
        }

    def mounts(self) -> dict[str, CacheMount]:
        """Return the mounts of claims that differ from the default, by cache."""
        followed = {
            model_cache(self.spec or {}): self.cache_mount,
            **{name: self.adapters[name].cache_mount for name in sorted(self.adapters)},
        }
        return {name: mount for name, mount in followed.items() if name and mount}

    def mode(self) -> str:
        """Return how the engines share the work."""
        mode: str = (self.spec or {}).get("serving", {}).get("mode", "Unified")
        return mode
