"""What one cloud offers to the activities that create and delete clusters: everything that differs from cloud to cloud."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from activities.clouds.desired import INVALID_INPUT, Desired, Problem
from activities.clouds.lifecycle.handler import Handler
from api_types.messages.clouds import AuditCloud, CloudAccount, Facts, Leftover, WorkClass
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster


@dataclass(frozen=True)
class Endpoint:
    """How the API server of a cluster is reached: base URL, and its certificate authority as PEM."""

    server: str
    authority: str


@dataclass(frozen=True)
class BearerToken:
    """A short-lived token, and when it expires in seconds since 1970. Never printed."""

    text: str
    expires_at: float

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"BearerToken(expires_at={self.expires_at})"


class Provider(Protocol):
    """One cloud with one credential in one region. Every method blocks: it is run in a thread. Raises errors of `api_types.errors` only."""

    def pinned(self, account: CloudAccount) -> CloudAccount:
        """Give the account with its project (or account id), which is read once; the pinned one is kept. Raises CredentialsInvalid."""

    def plan(
        self, account: CloudAccount, cluster: InferenceCluster, classes: Mapping[str, InferenceClass], known: Mapping[str, Facts]
    ) -> Desired:
        """Ask what must be asked (zones, reservations, cards), check what can be checked before money is spent, and give what is wanted.

        What `known` has, such as the subnets that there are, is kept as it is.
        """

    def work_class(self, kind: str) -> WorkClass:
        """Give how long the work on a kind of object may take."""

    def handler(self, account: CloudAccount, kind: str) -> Handler | None:
        """Give the handler of a kind of object; None for those of the cluster itself: Connection, StorageClass, HelmRelease."""

    def cloud_cluster(self, account: CloudAccount) -> str:
        """Name the cluster at the cloud."""

    def endpoint(self, account: CloudAccount) -> Endpoint:
        """Ask the cloud for the endpoint of the cluster. Raises NotYet while it has none."""

    def token(self, account: CloudAccount) -> BearerToken:
        """Give a token for the API server of the cluster."""

    def audit(self, order: AuditCloud) -> Sequence[Leftover]:
        """List what is left of a cluster at the cloud, by owner marks and by what belongs to its network (spec 9.4).

        What has a key is in the order in which it can be deleted, kind by kind: while one is there, no later kind is swept.
        """

    def sweep(self, order: AuditCloud, leftover: Leftover) -> None:
        """Delete something that the cluster made and nothing else owns (spec 9.3), or that our marks say is of it.

        Raises Dependency while it is in use, and until it is gone.
        """


def plan_of(
    provider: Provider,
    account: CloudAccount,
    cluster: InferenceCluster,
    classes: Mapping[str, InferenceClass],
    known: Mapping[str, Facts],
) -> Desired:
    """Give what is wanted. Pools that are refused do not hold up the others of a cluster that is there: it is planned without them."""
    left_out: list[Problem] = []
    while True:
        desired = provider.plan(account, cluster, classes, known)
        invalid = [problem for problem in desired.refused if problem.reason == INVALID_INPUT]
        pools = [pool for pool in cluster.spec.node_pools or () if f"pool {pool.name}" in {problem.at for problem in invalid}]
        if desired.objects or not known or not pools or not all(problem.at for problem in invalid):
            return replace(desired, refused=(*desired.refused, *left_out))
        left_out += invalid
        others = [pool for pool in cluster.spec.node_pools or () if pool not in pools]
        cluster = cluster.model_copy(update={"spec": cluster.spec.model_copy(update={"node_pools": others})})
