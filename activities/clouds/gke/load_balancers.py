"""Find the load balancers of a GKE cluster and of its users.

Objects without a network are found through related objects in the
network: a firewall rule `k8s-fw-<name>` belongs to the forwarding rule of that name,
which names its target and address. A rule of GKE's controller has the name of a backend
service, and shares the digits of the cluster with its forwarding rule. Other users may
be allowed to write firewall rules but not to delete load balancers, so the name alone
is not sufficient: the target must contain nodes of the cluster, have groups in its
network, or serve nobody.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from activities.clouds.desired.owner import is_our_service
from activities.clouds.gke.clients import LEGACY_HEALTH_CHECKS
from activities.clouds.gke.search import (
    ADDRESS,
    BACKEND_SERVICE,
    ENDPOINT_GROUP,
    FORWARDING_RULE,
    HEALTH_CHECK,
    INSTANCE_GROUP,
    LEGACY_HEALTH_CHECK,
    PAGES,
    REGION_HEALTH_CHECK,
    TARGET_POOL,
    GkeSearch,
    last_of,
    path_of,
)
from api_types.messages.clouds import Leftover

# The keys in descriptions of Kubernetes' own controller, of GKE's controller, and of
# its network endpoint groups.
_KUBERNETES = ("kubernetes.io/", "networking.gke.io/", '"cluster-uid"')
_FIREWALL_PREFIX = "k8s-fw-"
# Names of GKE's controller begin with its version and eight digits of the cluster. A
# forwarding rule has its protocol before them.
_OF_CONTROLLER = re.compile(r"k8s[23]-(?:[a-z0-9]+-)?(?P<uid>[a-z0-9]{8})-")
_INSTANCE_GROUP_PREFIX = "k8s-ig--"
# GKE shortens the names of cluster and pool in names of nodes, each to at least this.
_NODE_NAME_PART = 16
# A firewall rule that admits a health check has the name of that check and a suffix. The
# prefix is added if the check belongs to one Service.
_CHECK_SUFFIXES = ("-http-hc", "-hc", "-fw")
_CHECK_PREFIX = "k8s-"
_TARGETS = {
    TARGET_POOL: "compute.target_pools",
    BACKEND_SERVICE: "compute.backend_services",
}
_SHARED = "something else uses it"
_SERVICE = re.compile(
    r'"(?:kubernetes|networking\.gke)\.io/service-name"\s*:\s*"([^"]*)"'
)


class BalancerSearch(GkeSearch):
    """Finds the objects of Services of type LoadBalancer."""

    def load_balancers(self) -> Iterator[Leftover]:
        """Yield the parts of load balancers without their firewall rules.

        Once other parts are gone, the firewall rules are needed to find the rest.
        """
        firewalls = [
            each for each in self._firewalls_of_network() if is_kubernetes(each)
        ]
        named = {
            each.name.removeprefix(_FIREWALL_PREFIX)
            for each in firewalls
            if each.name.startswith(_FIREWALL_PREFIX)
        }
        checks = set(chain.from_iterable(_checks_of(each.name) for each in firewalls))
        uids = {_uid(each.name) for each in firewalls} - {""}
        groups = self._groups_of_network()
        targets = {kind: self._regional(service) for kind, service in _TARGETS.items()}
        rules = self._regional("compute.forwarding_rules")
        in_use = set[str]()
        for rule in rules:
            urls = rule.target, rule.backend_service, rule.I_p_address
            in_use |= {*urls, *map(last_of, urls)}
        # A backend service is in use by its own forwarding rule.
        unused = (named - in_use) | {each.name for each in firewalls if _uid(each.name)}
        names = set[str]()
        for kind, found in targets.items():
            names |= {
                each.name
                for each in found
                if self._is_target(kind, each, unused, groups)
            }
        addresses: set[str] = set()
        for rule in rules:
            to = {last_of(rule.target), last_of(rule.backend_service)} - {""}
            in_network = self._is_network(rule.network)
            if is_kubernetes(rule) and (
                in_network
                or (to & names and (rule.name in named or _uid(rule.name) in uids))
            ):
                of_rule = {rule.name, *to}
                names |= of_rule
                addresses |= {rule.I_p_address, last_of(rule.I_p_address)} - {""}
                if self._is_of_users(rule):
                    self._kept |= {
                        *of_rule,
                        rule.I_p_address,
                        last_of(rule.I_p_address),
                    } - {""}
                yield self._balancer(FORWARDING_RULE, rule)
            elif in_network:
                yield self._foreign(FORWARDING_RULE, rule)
        used: set[str] = set()
        for kind, found in targets.items():
            yield from self._targets(kind, found, names, checks, used)
        yield from self._checks(checks, used)
        yield from self._endpoint_groups()
        yield from self._instance_groups()
        yield from self._addresses(names, addresses, unused, in_use)

    def _targets(
        self,
        kind: str,
        found: Sequence[Any],
        names: set[str],
        checks: set[str],
        used: set[str],
    ) -> Iterator[Leftover]:
        """Yield the targets with these names, and foreign ones in the network.

        Adds health checks of the named targets to `checks`, and health checks with
        other users to `used`.
        """
        for each in found:
            of_target = {last_of(url) for url in each.health_checks}
            if is_kubernetes(each) and each.name in names:
                checks |= of_target
                if each.name in self._kept:
                    used |= of_target
                    self._kept |= of_target
                    if kind == BACKEND_SERVICE:
                        self._kept |= {last_of(every.group) for every in each.backends}
                yield self._balancer(kind, each)
                continue
            used |= of_target
            if kind == BACKEND_SERVICE and self._is_network(each.network):
                yield self._foreign(kind, each)

    def _is_target(
        self, kind: str, item: Any, unused: set[str], groups: set[str]
    ) -> bool:
        """Return True if the target of a forwarding rule belongs to this cluster.

        A target pool belongs to it if it contains nodes of the cluster, or if it has no
        nodes and its name is in `unused`. A backend service belongs to it if it is in
        the network, if it has one of the `groups` of the network, or if it has no
        groups and the name of a firewall rule, which is in `unused` too.
        """
        if not is_kubernetes(item):
            return False
        if kind == BACKEND_SERVICE:
            of_item = {path_of(each.group) for each in item.backends}
            return self._is_network(item.network) or bool(
                of_item & groups if of_item else item.name in unused
            )
        return any(map(self._is_node, item.instances)) or (
            item.name in unused and not item.instances
        )

    def _is_node(self, url: str) -> bool:
        """Return True if an instance has the name of a node of this cluster."""
        name = last_of(url).removeprefix("gke-")
        return name.startswith(f"{self._base}-") or (
            len(self._base) > _NODE_NAME_PART
            and name.startswith(self._base[:_NODE_NAME_PART])
        )

    def _is_of_users(self, item: Any) -> bool:
        """Return True if a load balancer belongs to users."""
        service = _SERVICE.search(item.description)
        return not self._emptied and not is_our_service(service[1] if service else "")

    def _balancer(self, kind: str, item: Any) -> Leftover:
        """Yield a part of a load balancer, as foreign if users keep the load balancer."""
        of = {
            item.name,
            item.name.removeprefix(_FIREWALL_PREFIX),
            getattr(item, "address", ""),
            *_checks_of(item.name),
        }
        if of & self._kept:
            return self._foreign(
                kind, item, f"of a Service of users: {item.description}"
            )
        return self._made(kind, item, item.description)

    def _checks(self, names: set[str], used: set[str]) -> Iterator[Leftover]:
        """Yield the health checks with these names.

        Checks in `used` have other users. A health check has no network, so the name
        does not show its cluster.
        """
        if not names:
            return
        place = {"project": self._project}
        for kind, found in (
            (HEALTH_CHECK, self._api.every("compute.health_checks", "list", place)),
            (REGION_HEALTH_CHECK, self._regional("compute.region_health_checks")),
        ):
            for each in found:
                if each.name in names and is_kubernetes(each):
                    yield (
                        self._foreign(kind, each, _SHARED)
                        if each.name in used
                        else self._made(kind, each, each.description)
                    )
        for each in self._api.every(LEGACY_HEALTH_CHECKS, "list", place):
            description = str(each.get("description", ""))
            if each["name"] in names and _has_mark(description):
                path = (
                    f"projects/{self._project}/global/httpHealthChecks/{each['name']}"
                )
                ours = each["name"] not in used
                link = self._link(PAGES[LEGACY_HEALTH_CHECK])
                yield Leftover(
                    kind=LEGACY_HEALTH_CHECK,
                    id=path,
                    evidence=description if ours else _SHARED,
                    ours=ours,
                    link=link,
                )

    def _endpoint_groups(self) -> Iterator[Leftover]:
        for each in self._aggregated(
            "compute.network_endpoint_groups", "network_endpoint_groups"
        ):
            if self._is_network(each.network):
                yield (
                    self._balancer(ENDPOINT_GROUP, each)
                    if is_kubernetes(each)
                    else self._foreign(ENDPOINT_GROUP, each)
                )

    def _instance_groups(self) -> Iterator[Leftover]:
        """Yield the groups of load balancers. GKE itself deletes the groups of pools."""
        for each in self._aggregated("compute.instance_groups", "instance_groups"):
            if not self._is_network(each.network):
                continue
            if each.name in self._kept:
                yield self._foreign(INSTANCE_GROUP, each, "of a Service of users")
            elif each.name.startswith(_INSTANCE_GROUP_PREFIX):
                evidence = f"in network {self._base}, named as by Kubernetes"
                yield self._made(INSTANCE_GROUP, each, evidence)
            elif not each.name.startswith("gke-"):
                yield self._foreign(INSTANCE_GROUP, each)

    def _groups_of_network(self) -> set[str]:
        """Return the paths of endpoint groups and instance groups in the network."""
        return {
            path_of(each.self_link)
            for items in ("network_endpoint_groups", "instance_groups")
            for each in self._aggregated(f"compute.{items}", items)
            if self._is_network(each.network)
        }

    def _addresses(
        self, names: set[str], used: set[str], unused: set[str], in_use: set[str]
    ) -> Iterator[Leftover]:
        for each in self._regional("compute.addresses"):
            in_network = self._is_network(each.network) or self._is_subnet(
                each.subnetwork
            )
            free = each.name in unused and each.address not in in_use and not each.users
            if is_kubernetes(each) and (
                in_network or free or each.name in names | used or each.address in used
            ):
                yield self._balancer(ADDRESS, each)
            elif in_network:
                yield self._foreign(ADDRESS, each)


def is_kubernetes(item: Any) -> bool:
    """Return True if a controller of Kubernetes has written the description."""
    return _has_mark(item.description)


def _has_mark(description: str) -> bool:
    return any(each in description for each in _KUBERNETES)


def _uid(name: str) -> str:
    """Return the digits of the cluster in a name of GKE's controller."""
    found = _OF_CONTROLLER.match(name)
    return found["uid"] if found else ""


def _checks_of(firewall: str) -> set[str]:
    """Return the possible names of the health check that a firewall rule admits.

    Other firewall rules have none.
    """
    suffix = next((each for each in _CHECK_SUFFIXES if firewall.endswith(each)), "")
    name = firewall.removesuffix(suffix)
    return {name, name.removeprefix(_CHECK_PREFIX)} if suffix else set()
