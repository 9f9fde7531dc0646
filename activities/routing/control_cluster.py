"""The control cluster: how to connect to it, and the kinds and permissions it needs."""

from dataclasses import dataclass
from functools import cached_property

from activities.cluster_objects import kinds
from activities.cluster_objects.access_review import (
    ResourceRight,
    denied_of,
    is_administrator,
    shown,
)
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    ClusterPool,
    GroupVersionKind,
    ObjectId,
)
from activities.routing.denied_networks import DeniedNetworks
from api_types.errors import NoControlCluster, PermissionDenied, StackMissing
from api_types.messages.cluster_work import Connection
from api_types.messages.gateway_work import GatewayFacts
from api_types.sections.clusters import ControlClusterSettings

NAME = "control"
"""The name of the control cluster in messages. It is not an InferenceCluster."""
ROLES_FILE = "deploy/control-cluster/rbac.yaml"
_OWN = ("get", "list", "watch", "create", "patch", "delete")
_FOLLOW = ("list", "watch")
# The kinds that are applied and watched there, with the verbs.
USED: tuple[tuple[GroupVersionKind, tuple[str, ...]], ...] = (
    (kinds.HTTP_ROUTE, _OWN),
    (kinds.SERVICE, _OWN),
    (kinds.ENDPOINT_SLICE, _OWN),
    (kinds.GATEWAY, _FOLLOW),
    (kinds.NAMESPACE, ("get", "create")),
)
# Kinds that only some services need. Without the first two permissions, services of a
# Traefik have no retries or timeouts, but work otherwise. The kinds of Envoy Gateway are
# needed by all services, but only with the backend Envoy.
USED_BY_SOME: tuple[tuple[GroupVersionKind, tuple[str, ...]], ...] = (
    (kinds.MIDDLEWARE, _OWN),
    (kinds.GATEWAY_CLASS, _FOLLOW),
    (kinds.BACKEND, _OWN),
    (kinds.BACKEND_TRAFFIC_POLICY, _OWN),
    (kinds.HTTP_ROUTE_FILTER, _OWN),
)
_KUBE_SYSTEM = ObjectId(kinds.NAMESPACE, "", "kube-system")


@dataclass(frozen=True)
class ControlCluster:
    """The control cluster that the settings name."""

    clusters: ClusterPool
    settings: ControlClusterSettings

    @cached_property
    def denied(self) -> DeniedNetworks:
        """The networks in which endpoints must not be."""
        return DeniedNetworks(self.settings.endpoint_deny_cidrs)

    @property
    def connection(self) -> Connection:
        """The reference to its kubeconfig."""
        return Connection(
            cluster=NAME,
            namespace=self.settings.namespace,
            name=self.settings.name,
            key=self.settings.key,
        )

    async def api(self) -> ClusterApi:
        """Return a client for the control cluster.

        Raises NoControlCluster if none is configured, and CredentialsInvalid.
        """
        if not self.settings.name:
            raise NoControlCluster(
                "no control cluster is configured; "
                "set controlCluster.name to a Secret with its kubeconfig"
            )
        return await self.clusters.at(self.connection)

    async def check(self) -> GatewayFacts:
        """Connect to the control cluster, and check its kinds and permissions.

        Raises StackMissing without the Gateway API, PermissionDenied, and the errors of
        connecting.
        """
        cluster = await self.api()
        version = await cluster.version()
        served = await cluster.resources(refresh=True)
        missing = [
            kind for kind in (kinds.HTTP_ROUTE, kinds.GATEWAY) if kind not in served
        ]
        if missing:
            raise StackMissing(
                f"the control cluster does not serve {missing[0]}: install the CRDs of "
                "the Gateway API there (standard channel)"
            )
        if not await is_administrator(cluster):
            rights: list[ResourceRight] = []
            for kind, verbs in USED:
                if kind in served:
                    plural = served[kind].plural
                    rights += [
                        ResourceRight(verb, plural, kind.group) for verb in verbs
                    ]
            denied = await denied_of(cluster, rights)
            if denied:
                raise PermissionDenied(
                    "the control cluster: the user of the kubeconfig lacks permissions, "
                    f"in all namespaces: {shown(denied)}; "
                    f"bind it to the ClusterRole of {ROLES_FILE}, or to cluster-admin"
                )
        # The uid of this namespace identifies the cluster.
        found = await cluster.get(_KUBE_SYSTEM)
        return GatewayFacts(
            kubernetes_version=version,
            uid=found["metadata"]["uid"] if found else "",
            denied_cidrs=await self.denied.of(cluster),
        )
