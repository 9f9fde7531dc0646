"""All that a ModelReplica knows; continue-as-new carries it whole."""

from typing import Any

from pydantic import Field

from api_types.messages import Applied, ClusterChanged, ReplicaBirth
from api_types.observations import ObservedReplica
from workflows.entity import Carried
from workflows.teardown_progress import TeardownProgress


class ReplicaCarried(Carried):
    """What a replica carries.

    Attributes:
        entry: its ledger entry, kept for a scheduler that lost its memory.
        attempted: something of ours may be on the cluster; `whole`: the last apply was not interrupted, so the inventory is complete.
        told: what the deployment last heard.

    """

    birth: ReplicaBirth
    entry: dict[str, Any] = Field(default_factory=dict)
    cluster: ClusterChanged | None = None
    applied: Applied | None = None
    applied_generation: int = 0
    attempted: bool = False
    whole: bool = False
    failure: tuple[str, str] = ("", "")
    failure_reason: str = ""
    retry_at: str = ""
    observed: ObservedReplica | None = None
    drift_since: str = ""
    prune: bool = False
    serving: bool = False
    served: bool = False
    was_ready: bool = False
    sequence: int = 0
    told: dict[str, Any] = Field(default_factory=dict)
    teardown: TeardownProgress = Field(default_factory=TeardownProgress)
