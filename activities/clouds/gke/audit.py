"""What is left of a GKE cluster in its project (spec/provisioning.md 9.3, 9.4).

Ours is what has the owner mark, or what the cluster made: its network is ours alone, and software of Kubernetes writes the Service into the
description. What only stands in our network is named and never deleted. Objects without a network are found through those that have one:
a firewall rule `k8s-fw-<name>` belongs to the forwarding rule of that name, which names its target and address. Whoever may write firewall
rules may not delete load balancers, so such a name is a hint alone: the target has to be of our nodes or in our network.

Load balancers of users are theirs unless the cluster was emptied before, and what their claims stored always is (ruling 71).
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.clients import LEGACY_HEALTH_CHECKS
from activities.clouds.gke.handlers.accounts import read_policy
from activities.clouds.gke.wanted.cluster import CLUSTER
from activities.clouds.gke.wanted.foundation import ACCOUNT, BINDING, CLUSTER_ADMIN, SUBNET, VPC
from activities.clouds.owner import gcp_description, is_our_claim, is_our_service, owner_named
from api_types import labels
from api_types.errors import PermissionDenied
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
ADDRESS = "Address"
DISK = "Disk"
FILESTORE = "FilestoreInstance"
POLICY_MEMBER = "PolicyMember"
CLUSTER_KIND = "Cluster"
SUBNETWORK = "Subnetwork"
NETWORK = "Network"
SERVICE_ACCOUNT = "ServiceAccount"
ROLE_BINDING = "IAM binding"

_KUBERNETES = "kubernetes.io/"
_FIREWALL_PREFIX = "k8s-fw-"
# What a firewall rule that lets a health check in has after the name of that check, and what before it where it is of one Service.
_CHECK_SUFFIXES = ("-http-hc", "-hc", "-fw")
_CHECK_PREFIX = "k8s-"
# Routes that go with the network, or with a peering of it.
_ROUTES_OF_NETWORK = ("default-route-", "peering-route-")
_CLUSTER_LABEL = "goog-k8s-cluster-name"
_DISK_PREFIX = "pvc-"
_CSI_LABEL = "storage_gke_io_created-by"
_CLAIM_LABEL = "kubernetes_io_created-for_pvc_name"
_CLAIM = re.compile(r'"kubernetes\.io/created-for/pvc/name"\s*:\s*"([^"]*)"')
_TARGETS = {TARGET_POOL: "compute.target_pools", BACKEND_SERVICE: "compute.backend_services"}
_SHARED = "something else uses it"
_SERVICE = re.compile(r'"kubernetes\.io/service-name"\s*:\s*"([^"]*)"')
_CONSOLE = "https://console.cloud.google.com"


class Audit:
    """One look at everything that may be left of the cluster of an account. `emptied`: users had no load balancers in it any more."""

    def __init__(self, api: GoogleApi, account: CloudAccount, *, emptied: bool) -> None:
        self._api = api
        self._emptied = emptied
        # Names and addresses of load balancers that are left to users.
        self._kept = set[str]()
        self._owner = owner_named(account.installation, account.cluster, account.cluster_uid)
        self._project = account.project
        self._region = account.region
        self._base = self._owner.base
        self._email = f"{self._owner.account}@{account.project}.iam.gserviceaccount.com"

    def leftovers(self) -> list[Leftover]:
        """Give all, in an order in which they can be deleted."""
        cluster = self._cluster()
        found = [
            *self.load_balancers(),
            *self._firewalls(gone=cluster is None),
            *self._routes(gone=cluster is None),
            *self._disks(),
            *self._filestore(),
            *([cluster] if cluster is not None else []),
            *self._instances(gone=cluster is None),
            *self._foundation(),
            *self._members(),
        ]
        return sorted(found, key=lambda each: bool(each.key))

    # --- what a Service of type LoadBalancer makes --------------------------------------------------------------------------------

    def load_balancers(self) -> Iterator[Leftover]:
        """Give the parts of load balancers but for their firewall rules, by which those are found whose other parts are gone."""
        firewalls = [each for each in self._firewalls_of_network() if _is_kubernetes(each)]
        named = {each.name.removeprefix(_FIREWALL_PREFIX) for each in firewalls if each.name.startswith(_FIREWALL_PREFIX)}
        checks = {name for each in firewalls for name in _checks_of(each.name)}
        targets = {kind: self._regional(service) for kind, service in _TARGETS.items()}
        rules = self._regional("compute.forwarding_rules")
        in_use = {text for rule in rules for url in (rule.target, rule.backend_service, rule.I_p_address) for text in (url, _last(url))}
        unused = named - in_use
        names = {each.name for kind, found in targets.items() for each in found if self._is_target(kind, each, unused)}
        addresses: set[str] = set()
        for rule in rules:
            to = {_last(rule.target), _last(rule.backend_service)} - {""}
            in_network = self._is_network(rule.network)
            if _is_kubernetes(rule) and (in_network or (rule.name in named and to & names)):
                of_rule = {rule.name, *to}
                names |= of_rule
                addresses |= {rule.I_p_address, _last(rule.I_p_address)} - {""}
                if self._is_of_users(rule):
                    self._kept |= {*of_rule, rule.I_p_address, _last(rule.I_p_address)} - {""}
                yield self._balancer(FORWARDING_RULE, rule)
            elif in_network:
                yield self._foreign(FORWARDING_RULE, rule)
        used: set[str] = set()
        for kind, found in targets.items():
            for each in found:
                urls = {_last(url) for url in each.health_checks}
                if _is_kubernetes(each) and each.name in names:
                    checks |= urls
                    if each.name in self._kept:
                        used |= urls
                        self._kept |= urls
                    yield self._balancer(kind, each)
                    continue
                used |= urls
                if kind == BACKEND_SERVICE and self._is_network(each.network):
                    yield self._foreign(kind, each)
        yield from self._checks(checks, used)
        yield from self._endpoint_groups()
        yield from self._addresses(names, addresses, unused, in_use)

    def _is_target(self, kind: str, item: Any, unused: set[str]) -> bool:
        """Whether what a forwarding rule sends to is of this cluster, whatever its name is; or is `unused`, and without nodes."""
        if not _is_kubernetes(item):
            return False
        if kind == BACKEND_SERVICE:
            return self._is_network(item.network)
        return any(f"/instances/gke-{self._base}-" in url for url in item.instances) or (item.name in unused and not item.instances)

    def _is_of_users(self, item: Any) -> bool:
        """Whether a load balancer is of a Service of users, who were not asked for it."""
        service = _SERVICE.search(item.description)
        return not self._emptied and not is_our_service(service[1] if service else "")

    def _balancer(self, kind: str, item: Any) -> Leftover:
        """Give a part of a load balancer: that of one which is left to users is left too."""
        of = {item.name, item.name.removeprefix(_FIREWALL_PREFIX), getattr(item, "address", ""), *_checks_of(item.name)}
        if of & self._kept:
            return self._foreign(kind, item, f"of a Service of users: {item.description}")
        return self._made(kind, item, item.description)

    def _checks(self, names: set[str], used: set[str]) -> Iterator[Leftover]:
        """Give the health checks of these names: they have no network, and those of other clusters look alike. `used` are of others too."""
        if not names:
            return
        place = {"project": self._project}
        for kind, found in (
            (HEALTH_CHECK, self._api.every("compute.health_checks", "list", place)),
            (REGION_HEALTH_CHECK, self._regional("compute.region_health_checks")),
        ):
            for each in found:
                if each.name in names and _is_kubernetes(each):
                    yield self._foreign(kind, each, _SHARED) if each.name in used else self._made(kind, each, each.description)
        for each in self._api.every(LEGACY_HEALTH_CHECKS, "list", place):
            description = str(each.get("description", ""))
            if each["name"] in names and _KUBERNETES in description:
                path = f"projects/{self._project}/global/httpHealthChecks/{each['name']}"
                ours = each["name"] not in used
                link = self._link(_PAGES[LEGACY_HEALTH_CHECK])
                yield Leftover(kind=LEGACY_HEALTH_CHECK, id=path, evidence=description if ours else _SHARED, ours=ours, link=link)

    def _endpoint_groups(self) -> Iterator[Leftover]:
        for each in self._aggregated("compute.network_endpoint_groups", "network_endpoint_groups"):
            if self._is_network(each.network):
                yield self._made(ENDPOINT_GROUP, each, each.description) if _is_kubernetes(each) else self._foreign(ENDPOINT_GROUP, each)

    def _addresses(self, names: set[str], used: set[str], unused: set[str], in_use: set[str]) -> Iterator[Leftover]:
        for each in self._regional("compute.addresses"):
            in_network = self._is_network(each.network) or self._is_subnet(each.subnetwork)
            free = each.name in unused and each.address not in in_use and not each.users
            if _is_kubernetes(each) and (in_network or free or each.name in names | used or each.address in used):
                yield self._balancer(ADDRESS, each)
            elif in_network:
                yield self._foreign(ADDRESS, each)

    # --- what else the cluster made -----------------------------------------------------------------------------------------------

    def _firewalls(self, *, gone: bool) -> Iterator[Leftover]:
        """Give firewall rules. Those that GKE makes go with the cluster, and are left only once it is `gone`."""
        for each in self._firewalls_of_network():
            if _is_kubernetes(each):
                yield self._balancer(FIREWALL, each)
            elif not each.name.startswith(f"gke-{self._base}-"):
                yield self._foreign(FIREWALL, each)
            elif gone:
                yield self._made(FIREWALL, each, f"named after cluster {self._base}")

    def _routes(self, *, gone: bool) -> Iterator[Leftover]:
        """Give routes: those that GKE makes as firewall rules, and those of others but for what the network itself has."""
        for each in self._api.every("compute.routes", "list", {"project": self._project}):
            if not self._is_network(each.network) or each.name.startswith(_ROUTES_OF_NETWORK):
                continue
            if not each.name.startswith(f"gke-{self._base}-"):
                yield self._foreign(ROUTE, each)
            elif gone:
                yield self._made(ROUTE, each, f"named after cluster {self._base}")

    def _disks(self) -> Iterator[Leftover]:
        request = {"project": self._project, "filter": f"labels.{_CLUSTER_LABEL}={self._base}"}
        for _, scope in self._api.every("compute.disks", "aggregated_list", request):
            for each in scope.disks:
                if dict(each.labels).get(_CLUSTER_LABEL) == self._base and each.name.startswith(_DISK_PREFIX):
                    claim = _CLAIM.search(each.description)
                    evidence = f"label {_CLUSTER_LABEL}={self._base}, of claim {claim[1] if claim else 'unknown'}"
                    is_ours = claim is not None and is_our_claim(claim[1])
                    yield self._made(DISK, each, evidence) if is_ours else self._foreign(DISK, each, evidence)

    def _filestore(self) -> Iterator[Leftover]:
        try:
            instances = self._api.every("filestore", "list_instances", {"parent": f"projects/{self._project}/locations/-"})
        except PermissionDenied as error:
            if "enable the API" in error.message:
                # Without the API there are no instances.
                return
            raise
        for each in instances:
            if not any(_last(network.network) == self._base for network in each.networks):
                continue
            by, claim = dict(each.labels).get(_CSI_LABEL, ""), dict(each.labels).get(_CLAIM_LABEL, "")
            evidence = f"label {_CSI_LABEL}={by} in network {self._base}, of claim {claim}" if by else self._others
            ours = bool(by) and is_our_claim(claim)
            yield Leftover(kind=FILESTORE, id=each.name, evidence=evidence, ours=ours, link=self._link("filestore/instances"))

    def _instances(self, *, gone: bool) -> Iterator[Leftover]:
        for each in self._aggregated("compute.instances", "instances"):
            if any(self._is_network(interface.network) for interface in each.network_interfaces):
                is_node = dict(each.labels).get(_CLUSTER_LABEL) == self._base
                if gone or not is_node:
                    yield self._foreign("Instance", each)
        for each in self._regional("compute.routers"):
            if self._is_network(each.network):
                yield self._foreign("Router", each)

    # --- the objects that were asked for ------------------------------------------------------------------------------------------

    def _cluster(self) -> Leftover | None:
        name = f"projects/{self._project}/locations/{self._region}/clusters/{self._base}"
        found = self._api.find("container", "get_cluster", {"name": name})
        if found is None:
            return None
        description = gcp_description(self._owner, CLUSTER)
        if dict(found.resource_labels).get(labels.GCP_OWNER) == self._owner.digits:
            evidence = f"label {labels.GCP_OWNER}={self._owner.digits}"
        elif found.description == description:
            # Labels are easily taken away; who makes the cluster looks at both.
            evidence = f"description {description}"
        else:
            return None
        return Leftover(kind=CLUSTER_KIND, id=name, evidence=evidence, ours=True, key=CLUSTER, link=self._link("kubernetes/list/overview"))

    def _foundation(self) -> Iterator[Leftover]:
        place = {"project": self._project}
        for each in self._regional("compute.subnetworks"):
            ours = self._is_subnet(each.self_link) and self._is_network(each.network)
            if ours and each.description == gcp_description(self._owner, SUBNET):
                yield self._made(SUBNETWORK, each, each.description, SUBNET)
            elif self._is_network(each.network):
                yield self._foreign(SUBNETWORK, each)
        network = self._api.find("compute.networks", "get", {**place, "network": self._base})
        if network is not None and network.description == gcp_description(self._owner, VPC):
            yield self._made(NETWORK, network, network.description, VPC)
        account = self._api.find("iam", "get_service_account", {"name": f"projects/{self._project}/serviceAccounts/{self._email}"})
        if account is not None and account.description == gcp_description(self._owner, ACCOUNT):
            link = self._link("iam-admin/serviceaccounts")
            yield Leftover(kind=SERVICE_ACCOUNT, id=account.email, evidence=account.description, ours=True, key=ACCOUNT, link=link)

    def _members(self) -> Iterator[Leftover]:
        link = self._link("iam-admin/iam")
        for binding in read_policy(self._api, f"projects/{self._project}").bindings:
            for member in binding.members:
                if member.startswith(f"deleted:serviceAccount:{self._email}?"):
                    evidence = f"member of {binding.role}, an account of this cluster that is deleted"
                    yield Leftover(kind=POLICY_MEMBER, id=f"{binding.role} {member}", evidence=evidence, ours=True, link=link)
                elif member == f"serviceAccount:{self._email}" and binding.role == CLUSTER_ADMIN:
                    evidence = "the account of this cluster"
                    yield Leftover(kind=ROLE_BINDING, id=f"{binding.role} {member}", evidence=evidence, ours=True, key=BINDING, link=link)

    # --- lists --------------------------------------------------------------------------------------------------------------------

    def _firewalls_of_network(self) -> list[Any]:
        return [each for each in self._api.every("compute.firewalls", "list", {"project": self._project}) if self._is_network(each.network)]

    def _regional(self, service: str) -> list[Any]:
        return self._api.every(service, "list", {"project": self._project, "region": self._region})

    def _aggregated(self, service: str, items: str) -> Iterable[Any]:
        for _, scope in self._api.every(service, "aggregated_list", {"project": self._project}):
            yield from getattr(scope, items)

    def _is_network(self, url: str) -> bool:
        return url.endswith(f"projects/{self._project}/global/networks/{self._base}")

    def _is_subnet(self, url: str) -> bool:
        return url.endswith(f"projects/{self._project}/regions/{self._region}/subnetworks/{self._base}-nodes")

    # --- what is said of one ------------------------------------------------------------------------------------------------------

    def _made(self, kind: str, item: Any, evidence: str, key: str = "") -> Leftover:
        return self._ours(kind, _path(item.self_link), evidence, key)

    def _ours(self, kind: str, path: str, evidence: str, key: str = "") -> Leftover:
        return Leftover(kind=kind, id=path, evidence=evidence, ours=True, key=key, link=self._link(_PAGES.get(kind, "welcome")))

    @property
    def _others(self) -> str:
        return f"in network {self._base}, made by others"

    def _foreign(self, kind: str, item: Any, evidence: str = "") -> Leftover:
        return Leftover(
            kind=kind, id=_path(item.self_link), evidence=evidence or self._others, link=self._link(_PAGES.get(kind, "welcome"))
        )

    def _link(self, page: str) -> str:
        return f"{_CONSOLE}/{page}?project={self._project}"


_PAGES = {
    FORWARDING_RULE: "net-services/loadbalancing/list/loadBalancers",
    TARGET_POOL: "net-services/loadbalancing/list/backends",
    BACKEND_SERVICE: "net-services/loadbalancing/list/backends",
    HEALTH_CHECK: "compute/healthChecks",
    REGION_HEALTH_CHECK: "compute/healthChecks",
    LEGACY_HEALTH_CHECK: "compute/healthChecks",
    FIREWALL: "networking/firewalls/list",
    ENDPOINT_GROUP: "compute/networkendpointgroups/list",
    ADDRESS: "networking/addresses/list",
    DISK: "compute/disks",
    "Instance": "compute/instances",
    NETWORK: "networking/networks/list",
    SUBNETWORK: "networking/networks/list",
    ROUTE: "networking/routes/list",
    "Router": "hybrid/routers/list",
}


def _is_kubernetes(item: Any) -> bool:
    """Whether software of Kubernetes made it: it writes the Service into the description."""
    return _KUBERNETES in item.description


def _checks_of(firewall: str) -> set[str]:
    """Give the names that the health check may have which a firewall rule of this name lets in; none for other firewall rules."""
    suffix = next((each for each in _CHECK_SUFFIXES if firewall.endswith(each)), "")
    name = firewall.removesuffix(suffix)
    return {name, name.removeprefix(_CHECK_PREFIX)} if suffix else set()


def _path(self_link: str) -> str:
    """Give the name of an object from its project on."""
    return f"projects/{self_link.partition('/projects/')[2]}"


def _last(url: str) -> str:
    return url.rpartition("/")[2]
