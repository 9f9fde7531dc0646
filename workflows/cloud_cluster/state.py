"""All that a CloudCluster knows; continue-as-new carries it whole."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.messages.clouds import (
    CloudAccount,
    CloudDelete,
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


class _Carried(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")


class Entry(_Carried):
    """One object of the inventory.

    Attributes:
        object: as it was ordered last.
        phase: of the object, as far as it is known.
        facts: what it reported when it was there.
        epoch: raised when it was seen gone, and has to be created again.
        made: the digest with which it was Ready last; empty: it has to be looked at.
        was_ready: whether it was ever Ready in this epoch. Then what breaks it is not repaired by deleting it.
        tried: whether it was worked on in this epoch.
        rebuilds: how often in a row it was deleted because it was broken. `rebuild`: a person wants that it is, if it still is broken.
        unseen: in how many epochs in a row it was created and never Ready.
        held: it is gone, and is not created again until a person wants that. `left`: it is not ours any more, and was not deleted.
        failure, retry_at: why the last work on it failed, and when it is tried again.
        message: what the cloud said of it.
        since: since when it is worked on. `removed_since`: since when it is not wanted any more.

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
    retry_at: str = ""
    message: str = ""
    since: str = ""
    removed_since: str = ""

    @property
    def gone(self) -> bool:
        """Whether it is not there any more."""
        return self.phase == "Absent"

    @property
    def title(self) -> str:
        """The object in a message."""
        return f"{self.object.key} ({self.object.kind} {self.object.name})"

    def begin_epoch(self) -> None:
        """Note that it is gone, and is created again."""
        self.epoch += 1
        self.phase, self.facts, self.made, self.was_ready = "Waiting", {}, "", False
        self.tried, self.held, self.rebuild, self.message = False, False, False, ""


class CloudState(_Carried):
    """What is carried.

    Attributes:
        order: the newest one. `classes`: those of its pools, also ones that are deleted meanwhile.
        deletion: what was ordered; None while the cluster is wanted. `looked_up`: all objects that there may be are in the inventory.
        account: whose objects they are, with what was pinned.
        plan: what is wanted; None before the first one. `planned`: the sequence of the order that it is of.
        plan_failure, plan_retry_at: why no plan could be made, and when that is tried again.
        paused, paused_until: why nothing is done at the cloud, and when it is tried whether the credential can be used again.
        inventory: all objects that there may be, by key.
        drift_at: when all objects are looked at next.
        durations: how many seconds each kind of object took last time.
        time: of the end of the last run (`SteadyTime`).
        usable, was_ready: whether the API server answered, and whether everything was ready, ever.
        deleted_pools: whether the cloud refuses to delete the control plane with its pools.
        audits, audit_at: how often leftovers were looked for, and when they are next. `leftovers`: what was found last,
            with `more_leftovers` that are not listed.
        audit_failure: why they could not be looked for. `listed`: they were, for a cluster that is given up.
        not_owned: objects of others that were found in the place of ours, and were left.
        reported, report_number: digest and number of the last report. `report_again_at`: when it is sent again, even if it is the same.

    """

    order: Compact[CloudOrder | None] = None
    classes: Compact[dict[str, dict[str, Any]]] = Field(default_factory=dict)
    deletion: CloudDelete | None = None
    looked_up: bool = False
    account: CloudAccount | None = None
    plan: Compact[CloudPlan | None] = None
    planned: int = 0
    plan_failure: Failure = NO_FAILURE
    plan_retry_at: str = ""
    paused: Failure = NO_FAILURE
    paused_until: str = ""
    inventory: Compact[dict[str, Entry]] = Field(default_factory=dict)
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
    listed: bool = False
    not_owned: list[str] = Field(default_factory=list)
    reported: str = ""
    report_number: int = 0
    report_again_at: str = ""
    events: list[EventRecord] = Field(default_factory=list)

    @property
    def known(self) -> dict[str, Facts]:
        """The facts of all objects that there may be."""
        return {key: entry.facts for key, entry in self.inventory.items() if entry.facts}
