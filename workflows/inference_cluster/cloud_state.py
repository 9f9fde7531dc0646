"""The part of an InferenceCluster's state that describes its CloudCluster."""

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.messages.clouds import (
    CloudAccount,
    CloudObject,
    CloudObjectState,
    CloudReport,
)
from api_types.messages.cluster_work import RemainingObject
from api_types.payloads.packing import Compact
from api_types.resources.status import EventRecord
from workflows.entity.failures import NO_FAILURE, Failure

GOING = ("Deleting", "Deleted")
"""The phases of a CloudCluster that deletes its objects."""


class CloudLink(BaseModel):
    """The carried state of the CloudCluster of an InferenceCluster.

    Attributes:
        account: the account that connects to the cluster. Set once the API server has
            answered, and kept after that.
        pinned: the account that owns the cloud objects. Set by the first plan.
        report: the newest report.
        ordered: the digest of the last order. Empty if the order has to be sent.
        number: the number of the last message. 0 if none was sent.
        begun: whether cloud objects may exist.
        pools: all pools that were ever wanted.
        removed: the unwanted objects that still existed at the last report.
        states: the last known states of the pools and of other objects.
        was_ready: whether the control plane, the system pool and a GPU pool were ever
            ready at once.
        missing: whether the CloudCluster has ended because everything was deleted.
        gone: whether the cloud said during the deletion that the control plane no longer
            exists.
        trouble: the current problems, as in the last report.
        events: the events of the CloudCluster.
        retry: whether a user requested an immediate retry of everything.
        emptied: whether the cluster no longer has to be emptied of objects that hold cloud
            resources.
        nothing_held: whether the cluster itself confirmed that none is left.
        remaining, failure, attempts, retry_at: the state of the last attempt to empty the
            cluster.
        emptying_since: when the first attempt to empty the cluster started.
        deleted: the digest of the last order to delete everything.

    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
    )

    account: CloudAccount | None = None
    pinned: CloudAccount | None = None
    report: CloudReport | None = None
    ordered: str = ""
    number: int = 0
    begun: bool = False
    pools: list[str] = Field(default_factory=list)
    removed: Compact[list[CloudObject]] = Field(default_factory=list)
    states: Compact[list[CloudObjectState]] = Field(default_factory=list)
    was_ready: bool = False
    missing: bool = False
    gone: bool = False
    trouble: str = ""
    events: Compact[list[EventRecord]] = Field(default_factory=list)
    retry: bool = False
    emptied: bool = False
    nothing_held: bool = False
    remaining: list[RemainingObject] = Field(default_factory=list)
    failure: Failure = NO_FAILURE
    attempts: int = 0
    retry_at: str = ""
    emptying_since: str = ""
    deleted: str = ""

    @property
    def deletion(self) -> CloudReport | None:
        """The newest report if it is about the deletion at the cloud."""
        is_going = self.report is not None and self.report.phase in GOING
        return self.report if is_going else None

    @property
    def ended(self) -> bool:
        """Whether everything at the cloud was deleted or abandoned."""
        return self.missing or (
            self.report is not None and self.report.phase == "Deleted"
        )
