"""The interface of one cloud for the activities that create and delete clusters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from activities.clouds.desired.plan import INVALID_INPUT, Desired, PlanProblem
from activities.clouds.lifecycle.handler import ObjectHandler
from api_types.messages.clouds import (
    AuditCloud,
    CloudAccount,
    Facts,
    Leftover,
    WorkClass,
)
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster

PROJECT_KEY = "project"
"""The key of a credential's Secret with the project of its clusters."""


@dataclass(frozen=True)
class ApiServerEndpoint:
    """The API server of a cluster: base URL, and its certificate authority as PEM."""

    server: str
    authority: str


@dataclass(frozen=True)
class BearerToken:
    """A short-lived token, and when it expires in seconds since 1970.

    The token is never printed.
    """

    text: str
    expires_at: float

    def __repr__(self) -> str:
        return f"BearerToken(expires_at={self.expires_at})"


class Provider(Protocol):
    """One cloud with one credential in one region.

    Every method blocks, and runs in a thread. Methods raise only the errors of
    `api_types.errors`.
    """

    def pinned(self, account: CloudAccount) -> CloudAccount:
        """Return the account with its project or account id, read once.

        The pinned account is stored. Raises CredentialsInvalid.
        """

    def plan(
        self,
        account: CloudAccount,
        cluster: InferenceCluster,
        classes: Mapping[str, InferenceClass],
        known: Mapping[str, Facts],
    ) -> Desired:
        """Compute the desired objects and their problems.

        This reads zones, reservations and network cards at the cloud, and checks as
        much as possible before anything costs money. Values in `known`, such as
        existing subnets, do not change.
        """

    def work_class(self, kind: str) -> WorkClass:
        """Return the class of work for a kind of object."""

    def handler(self, account: CloudAccount, kind: str) -> ObjectHandler | None:
        """Return the handler of a kind of object.

        Returns None for kinds inside the cluster: Connection, StorageClass,
        HelmRelease.
        """

    def cloud_cluster(self, account: CloudAccount) -> str:
        """Return the name of the cluster at the cloud."""

    def endpoint(self, account: CloudAccount) -> ApiServerEndpoint:
        """Return the endpoint of the cluster. Raises NotYet while it has none."""

    def token(self, account: CloudAccount) -> BearerToken:
        """Return a token for the API server of the cluster."""

    def audit(self, order: AuditCloud) -> Sequence[Leftover]:
        """List the leftovers of a cluster, by owner marks and by network.

        Leftovers with a key are in the order of deletion, kind by kind: while one
        exists, no later kind is swept.
        """

    def sweep(self, order: AuditCloud, leftover: Leftover) -> None:
        """Delete a leftover that only the cluster can own.

        Raises Dependency while it is in use or not gone yet.
        """


def plan_of(
    provider: Provider,
    account: CloudAccount,
    cluster: InferenceCluster,
    classes: Mapping[str, InferenceClass],
    known: Mapping[str, Facts],
) -> Desired:
    """Return the desired objects of a cluster, without rejected pools if it exists.

    Rejected pools must not block the other pools of an existing cluster.
    """
    left_out: list[PlanProblem] = []
    while True:
        desired = provider.plan(account, cluster, classes, known)
        invalid = [
            problem for problem in desired.refused if problem.reason == INVALID_INPUT
        ]
        at = {problem.at for problem in invalid}
        pools = [
            pool for pool in cluster.spec.node_pools or () if f"pool {pool.name}" in at
        ]
        if (
            desired.objects
            or not known
            or not pools
            or not all(problem.at for problem in invalid)
        ):
            return replace(desired, refused=(*desired.refused, *left_out))
        left_out += invalid
        others = [pool for pool in cluster.spec.node_pools or () if pool not in pools]
        cluster = cluster.model_copy(
            update={"spec": cluster.spec.model_copy(update={"node_pools": others})}
        )
