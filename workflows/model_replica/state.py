"""All that a ModelReplica knows; continue-as-new carries it whole."""

from typing import Any

from pydantic import Field

from api_types.messages.caches import CacheReport
from api_types.messages.cluster_work import Applied
from api_types.messages.entities import ClusterChanged, StartReplica
from api_types.messages.observations import ObservedReplica
from workflows.entity.state import EntityState
from workflows.model_replica.teardown_progress import TeardownProgress


class ReplicaCarried(EntityState):
    """What a replica carries.

    Attributes:
        entry: its ledger entry, kept for a scheduler that lost its memory.
        surface: how requests reach it (`pool` or `service`), fixed by the first apply, whatever the cluster says later.
        cache: what its cache last told; `cache_registered`: the cache's name, once that knows of us.
        cache_claim: the volume claim of its cache that is ready on the cluster; kept when the cache is lost.
        cache_mounted: the claims that its pods may mount, as the cache was last told.
        picker_flags: extra flags of its endpoint picker.
        applied_inputs: what came from outside the spec into the last apply.
        applied_mode: how the engines shared the work then.
        copies_due: when copies of Secrets are next compared with their sources.
        prune: something of an older generation may still be there; looked for again at `prune_at`, after `prunes` looks in vain.
        overdue: engines whose progress deadline has passed.
        attempted: something of ours may be on the cluster; `whole`: the last apply was not interrupted, so the inventory is complete.
        told: what the deployment last heard.

    """

    birth: StartReplica
    entry: dict[str, Any] = Field(default_factory=dict)
    cluster: ClusterChanged | None = None
    applied: Applied | None = None
    applied_generation: int = 0
    surface: str = ""
    cache: CacheReport | None = None
    cache_registered: str = ""
    cache_claim: str = ""
    cache_mounted: list[str] = Field(default_factory=list)
    picker_flags: dict[str, str] = Field(default_factory=dict)
    applied_inputs: list[Any] = Field(default_factory=list)
    applied_mode: str = ""
    copies_due: str = ""
    overdue: list[str] = Field(default_factory=list)
    attempted: bool = False
    whole: bool = False
    failure: tuple[str, str] = ("", "")
    failure_reason: str = ""
    retry_at: str = ""
    observed: ObservedReplica | None = None
    drift_since: str = ""
    prune: bool = False
    prune_at: str = ""
    prunes: int = 0
    serving: bool = False
    served: bool = False
    was_ready: bool = False
    sequence: int = 0
    told: dict[str, Any] = Field(default_factory=dict)
    teardown: TeardownProgress = Field(default_factory=TeardownProgress)
