"""The common part of searches for objects of a GKE cluster: kinds, lists and results."""

from collections.abc import Iterable
from typing import Any

from activities.clouds.desired.owner import owner_named
from activities.clouds.gke.api import GoogleApi
from api_types.messages.clouds import CloudAccount, Leftover

FORWARDING_RULE = "ForwardingRule"
TARGET_POOL = "TargetPool"
BACKEND_SERVICE = "BackendService"
HEALTH_CHECK = "HealthCheck"
REGION_HEALTH_CHECK = "RegionHealthCheck"
LEGACY_HEALTH_CHECK = "HttpHealthCheck"
FIREWALL = "Firewall"
ROUTE = "Route"
ENDPOINT_GROUP = "NetworkEndpointGroup"
INSTANCE_GROUP = "InstanceGroup"
ADDRESS = "Address"
DISK = "Disk"
FILESTORE = "FilestoreInstance"
POLICY_MEMBER = "PolicyMember"
CLUSTER_KIND = "Cluster"
SUBNETWORK = "Subnetwork"
NETWORK = "Network"
SERVICE_ACCOUNT = "ServiceAccount"
ROLE_BINDING = "IAM binding"

_CONSOLE = "https://console.cloud.google.com"


class GkeSearch:
    """One search for objects of an account's cluster.

    `emptied` means that the cluster reported no load balancers of users before its
    deletion.
    """

    def __init__(self, api: GoogleApi, account: CloudAccount, *, emptied: bool) -> None:
        self._api = api
        self._emptied = emptied
        # Names and addresses of load balancers that users keep.
        self._kept = set[str]()
        self._owner = owner_named(
            account.installation, account.cluster, account.cluster_uid
        )
        self._project = account.project
        self._region = account.region
        self._base = self._owner.base
        self._email = f"{self._owner.account}@{account.project}.iam.gserviceaccount.com"

    # Lists

    def _firewalls_of_network(self) -> list[Any]:
        return [
            each
            for each in self._api.every(
                "compute.firewalls", "list", {"project": self._project}
            )
            if self._is_network(each.network)
        ]

    def _regional(self, service: str) -> list[Any]:
        return self._api.every(
            service, "list", {"project": self._project, "region": self._region}
        )

    def _aggregated(self, service: str, items: str) -> Iterable[Any]:
        for _, scope in self._api.every(
            service, "aggregated_list", {"project": self._project}
        ):
            yield from getattr(scope, items)

    def _is_network(self, url: str) -> bool:
        return url.endswith(f"projects/{self._project}/global/networks/{self._base}")

    def _is_subnet(self, url: str) -> bool:
        return url.endswith(
            f"projects/{self._project}/regions/{self._region}/subnetworks/{self._base}-nodes"
        )

    # Leftovers

    def _made(self, kind: str, item: Any, evidence: str, key: str = "") -> Leftover:
        return self._ours(kind, path_of(item.self_link), evidence, key)

    def _ours(self, kind: str, path: str, evidence: str, key: str = "") -> Leftover:
        return Leftover(
            kind=kind,
            id=path,
            evidence=evidence,
            ours=True,
            key=key,
            link=self._link(PAGES.get(kind, "welcome")),
        )

    @property
    def _others(self) -> str:
        return f"in network {self._base}, created by others"

    def _foreign(self, kind: str, item: Any, evidence: str = "") -> Leftover:
        return Leftover(
            kind=kind,
            id=path_of(item.self_link),
            evidence=evidence or self._others,
            link=self._link(PAGES.get(kind, "welcome")),
        )

    def _link(self, page: str) -> str:
        return f"{_CONSOLE}/{page}?project={self._project}"


PAGES = {
    FORWARDING_RULE: "net-services/loadbalancing/list/loadBalancers",
    TARGET_POOL: "net-services/loadbalancing/list/backends",
    BACKEND_SERVICE: "net-services/loadbalancing/list/backends",
    HEALTH_CHECK: "compute/healthChecks",
    REGION_HEALTH_CHECK: "compute/healthChecks",
    LEGACY_HEALTH_CHECK: "compute/healthChecks",
    FIREWALL: "networking/firewalls/list",
    ENDPOINT_GROUP: "compute/networkendpointgroups/list",
    INSTANCE_GROUP: "compute/instanceGroups/list",
    ADDRESS: "networking/addresses/list",
    DISK: "compute/disks",
    "Instance": "compute/instances",
    NETWORK: "networking/networks/list",
    SUBNETWORK: "networking/networks/list",
    ROUTE: "networking/routes/list",
    "Router": "hybrid/routers/list",
}


def path_of(self_link: str) -> str:
    """Return the path of an object, starting with its project."""
    return f"projects/{self_link.partition('/projects/')[2]}"


def last_of(url: str) -> str:
    return url.rpartition("/")[2]
