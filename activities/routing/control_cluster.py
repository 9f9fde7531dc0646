"""The control cluster: how it is reached, and whether what is needed there is served and allowed."""

from dataclasses import dataclass
from functools import cached_property

from activities.cluster_objects import kinds
from activities.cluster_objects.access_review import Right, denied_of, is_administrator, shown
from activities.cluster_objects.cluster_api import ClusterApi, ClusterPool, Kind, ObjectId
from activities.routing.denied_networks import DeniedNetworks
from api_types.errors import NoControlCluster, PermissionDenied, StackMissing
from api_types.messages.cluster_work import Connection
from api_types.messages.gateway_work import GatewayFacts
from api_types.settings import ControlClusterSettings

NAME = "control"
"""What messages call it; no InferenceCluster is meant."""
ROLES_FILE = "deploy/control-cluster/rbac.yaml"
_OWN = ("get", "list", "watch", "create", "patch", "delete")
_FOLLOW = ("list", "watch")
# What is applied and watched there, by verbs.
USED: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    (kinds.HTTP_ROUTE, _OWN),
    (kinds.SERVICE, _OWN),
    (kinds.ENDPOINT_SLICE, _OWN),
    (kinds.GATEWAY, _FOLLOW),
    (kinds.NAMESPACE, ("get", "create")),
)
# What only some services need. Who may not do it has services without retries or timeouts, and no other disadvantage.
USED_BY_SOME: tuple[tuple[Kind, tuple[str, ...]], ...] = ((kinds.MIDDLEWARE, _OWN), (kinds.GATEWAY_CLASS, _FOLLOW))
_KUBE_SYSTEM = ObjectId(kinds.NAMESPACE, "", "kube-system")


@dataclass(frozen=True)
class ControlCluster:
    """The control cluster that the settings name."""

    clusters: ClusterPool
    settings: ControlClusterSettings

    @cached_property
    def denied(self) -> DeniedNetworks:
        """The networks where endpoints may not be."""
        return DeniedNetworks(self.settings.endpoint_deny_cidrs)

    @property
    def connection(self) -> Connection:
        """The reference to its kubeconfig."""
        return Connection(cluster=NAME, namespace=self.settings.namespace, name=self.settings.name, key=self.settings.key)

    async def api(self) -> ClusterApi:
        """Give a client for it. Raises NoControlCluster if none is configured, and CredentialsInvalid."""
        if not self.settings.name:
            raise NoControlCluster("no control cluster is configured; set controlCluster.name to a Secret with its kubeconfig")
        return await self.clusters.at(self.connection)

    async def check(self) -> GatewayFacts:
        """Reach it, and check that it serves routes and that our permissions suffice.

        Raises StackMissing without the Gateway API, PermissionDenied, and what reaching it raises.
        """
        cluster = await self.api()
        version = await cluster.version()
        served = await cluster.resources(refresh=True)
        missing = [kind for kind in (kinds.HTTP_ROUTE, kinds.GATEWAY) if kind not in served]
        if missing:
            raise StackMissing(
                f"the control cluster does not serve {missing[0]}: install the CRDs of the Gateway API there (standard channel)"
            )
        if not await is_administrator(cluster):
            rights = [Right(verb, served[kind].plural, kind.group) for kind, verbs in USED if kind in served for verb in verbs]
            if denied := await denied_of(cluster, rights):
                raise PermissionDenied(
                    f"the control cluster: the user of the kubeconfig lacks permissions, in all namespaces: {shown(denied)}; "
                    f"bind it to the ClusterRole of {ROLES_FILE}, or to cluster-admin"
                )
        # Its uid tells one cluster from another.
        found = await cluster.get(_KUBE_SYSTEM)
        return GatewayFacts(
            kubernetes_version=version, uid=found["metadata"]["uid"] if found else "", denied_cidrs=await self.denied.of(cluster)
        )
