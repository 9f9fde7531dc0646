"""What an InferenceCluster knows of the cluster that is created for it at a cloud."""

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.messages.clouds import CloudAccount, CloudObject, CloudReport
from api_types.messages.cluster_work import RemainingObject
from api_types.payloads.packing import Compact
from workflows.entity.failures import NO_FAILURE, Failure


class CloudLink(BaseModel):
    """What is carried of a CloudCluster.

    Attributes:
        account: how the cluster is reached, from when its API server first answered; kept whatever happens at the cloud. `pinned`: whose
            objects they are, from the first plan on.
        report: the newest one.
        ordered: digest of the last order; empty if it has to be sent. `number`: of the last message; 0 if none was ever sent.
        begun: whether there may be something at the cloud.
        pools: the pools that were ever wanted. `removed`: what was not wanted any more, and still there, when that was last reported.
        was_ready: whether everything at the cloud was ready, ever.
        missing: whether there is no CloudCluster any more, because everything was deleted.
        gone: whether the cloud said, while the cluster was being deleted, that its control plane does not exist any more.
        trouble: what was last recorded as an event. `retry`: a person wants the next attempt at everything now.
        emptied: whether nothing in the cluster holds anything at the cloud any more. `remaining`, `failure`, `attempts`, `retry_at`: of
            the last attempt to reach that. `emptying_since`: since when it is tried. `nothing_held`: the cluster itself said so.
        deleted: digest of the last order to delete everything.

    """

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

    account: CloudAccount | None = None
    pinned: CloudAccount | None = None
    report: CloudReport | None = None
    ordered: str = ""
    number: int = 0
    begun: bool = False
    pools: list[str] = Field(default_factory=list)
    removed: Compact[list[CloudObject]] = Field(default_factory=list)
    was_ready: bool = False
    missing: bool = False
    gone: bool = False
    trouble: str = ""
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
    def ended(self) -> bool:
        """Whether nothing is left at the cloud, or it was given up."""
        return self.missing or (self.report is not None and self.report.phase == "Deleted")
