"""The state of a CloudCluster. Continue-as-new carries all of it."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.messages.clouds import (
    CloudAccount,
    CloudDelete,
    CloudHealth,
    CloudObject,
    CloudOrder,
    CloudPlan,
    Facts,
    Leftover,
    ObjectPhase,
)
from api_types.payloads.packing import Compact
from api_types.resources.status import EventRecord
from workflows.entity.failures import NO_FAILURE, Failure

NOT_OBSERVED = "NotObserved"
"""The reason of an object that the last check of the cloud could not read."""


class _InventoryPart(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
    )


class InventoryEntry(_InventoryPart):
    """One object of the inventory.

    Attributes:
        object: the object as it was last ordered.
        phase: the last known phase.
        facts: the facts that the object reported when it last existed.
        epoch: increases each time the object disappears and has to be recreated.
        made: the digest with which the object was last Ready. Empty if the object has
            to be ensured again.
        was_ready: whether the object was Ready at any time in this epoch. A broken object
            that was Ready is not repaired by deletion.
        tried: whether an activity worked on the object in this epoch.
        rebuilds: how often in a row the object was deleted because it was broken.
        rebuild: whether a user asked to recreate the object if it is still broken.
        unseen: the number of consecutive epochs in which the object was created but was
            never Ready.
        held: whether the object is missing and is only recreated when a user asks for it.
        left: whether the object was not deleted because it belongs to somebody else.
        failure: why the last work on the object failed.
        trouble: the last failure, until the object is Ready. It stays while another
            attempt runs.
        trouble_since: when the object stopped being Ready and healthy.
        health: the problem that the cloud reports of the existing object.
        retry_at: when the next attempt may start.
        message: the last message of the cloud about the object.
        since: when the current work on the object started.
        removed_since: when the object was first missing from the plan.

    """

    object: CloudObject
    phase: ObjectPhase = "Waiting"
    facts: Facts = Field(default_factory=dict)
    epoch: int = 0
    made: str = ""
    was_ready: bool = False
    tried: bool = False
    rebuilds: int = 0
    rebuild: bool = False
    unseen: int = 0
    held: bool = False
    left: bool = False
    failure: Failure = NO_FAILURE
    trouble: Failure = NO_FAILURE
    trouble_since: str = ""
    health: CloudHealth | None = None
    retry_at: str = ""
    message: str = ""
    since: str = ""
    removed_since: str = ""

    @property
    def gone(self) -> bool:
        return self.phase == "Absent"

    @property
    def title(self) -> str:
        """The object as messages name it."""
        return f"{self.object.key} ({self.object.kind} {self.object.name})"

    @property
    def unread(self) -> bool:
        """Whether the last check could not read the object or not prove its owner."""
        return self.trouble.type == NOT_OBSERVED and not self.failure.type

    def begin_epoch(self) -> None:
        """Start a new epoch, in which the missing object is created again."""
        self.epoch += 1
        self.phase, self.facts, self.made, self.was_ready = "Waiting", {}, "", False
        self.tried, self.held, self.rebuild, self.message = False, False, False, ""
        self.health = None


class CloudState(_InventoryPart):
    """The carried state of a CloudCluster.

    Attributes:
        order: the newest order.
        classes: the classes of the order's pools, including classes deleted since then.
        deletion: the order to delete the cluster. None while the cluster is wanted.
        looked_up: whether the inventory contains every object that may exist.
        created_until: until when a creation that the deletion stopped may still create
            its object.
        account: the cloud account of the objects, with its pinned values.
        plan: the wanted objects. None before the first plan.
        planned: the sequence number of the order that `plan` is for.
        refused_since: since when the plan refuses each pool.
        plan_failure: why the last attempt to make a plan failed.
        plan_retry_at: when the next attempt to make a plan may start.
        paused: why all work on the cloud is paused.
        paused_until: when the credential is tried again.
        inventory: all objects that may exist, by key.
        drift_at: when all objects are observed next.
        durations: how many seconds the last creation of each kind of object took.
        time: the time at which the last run ended (see `SteadyTime`).
        usable: whether the API server has ever answered.
        was_ready: whether the control plane, the system pool and a GPU pool were ever
            Ready at once.
        deleted_pools: whether the cloud refuses to delete the control plane together with
            its pools.
        audits: the number of audits, which are searches for leftovers.
        audit_at: when the next audit is due.
        leftovers: the leftovers that the last audit listed.
        more_leftovers: the number of further leftovers that are not listed.
        audit_failure: why the last audit failed.
        blockers_at: when the search for objects that block a running deletion is due.
        blocked_since: since when objects of others block the deletion.
        listed: whether the leftovers of an abandoned cluster were listed.
        not_owned: objects of other owners that were found in place of the cluster's own
            objects and were not deleted.
        reported: the digest of the last report.
        report_number: the number of the last report.
        report_again_at: when the report is sent again even if it did not change.
        unreported: the number of events since the last report.

    """

    order: Compact[CloudOrder | None] = None
    classes: Compact[dict[str, dict[str, Any]]] = Field(default_factory=dict)
    deletion: CloudDelete | None = None
    looked_up: bool = False
    created_until: str = ""
    account: CloudAccount | None = None
    plan: Compact[CloudPlan | None] = None
    planned: int = 0
    refused_since: dict[str, str] = Field(default_factory=dict)
    plan_failure: Failure = NO_FAILURE
    plan_retry_at: str = ""
    paused: Failure = NO_FAILURE
    paused_until: str = ""
    inventory: Compact[dict[str, InventoryEntry]] = Field(default_factory=dict)
    drift_at: str = ""
    durations: dict[str, int] = Field(default_factory=dict)
    time: str = ""
    usable: bool = False
    was_ready: bool = False
    deleted_pools: bool = False
    audits: int = 0
    audit_at: str = ""
    leftovers: list[Leftover] = Field(default_factory=list)
    more_leftovers: int = 0
    audit_failure: Failure = NO_FAILURE
    blockers_at: str = ""
    blocked_since: str = ""
    listed: bool = False
    not_owned: list[str] = Field(default_factory=list)
    reported: str = ""
    report_number: int = 0
    report_again_at: str = ""
    events: list[EventRecord] = Field(default_factory=list)
    unreported: int = 0

    @property
    def known(self) -> dict[str, Facts]:
        """The facts of all objects that may exist, by key."""
        return {
            key: entry.facts for key, entry in self.inventory.items() if entry.facts
        }
