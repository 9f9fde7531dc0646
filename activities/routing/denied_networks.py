"""Networks in which endpoints must not be.

The operator lists them, or they are the networks of the Services and pods of the
control cluster. A tenant who could name an address there would make the gateway send
requests to servers that only the cluster's own pods should reach.
"""

import ipaddress
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Keep,
    ObjectId,
    Selection,
)
from api_types.errors import AnswerTooLarge, PermissionDenied, StackMissing
from api_types.limits import DENIED_NETWORKS_MAX
from api_types.setting_types import Network

N = TypeVar("N", ipaddress.IPv4Network, ipaddress.IPv6Network)

# The networks are read again, because each new node adds a network of its pods.
_FRESH_SECONDS = 600.0
# Every cluster has this Service. Its address is in the network of Services.
_API_SERVICE = ObjectId(kinds.SERVICE, "default", "kubernetes")


@dataclass
class DeniedNetworks:
    """The denied networks.

    `configured` is the setting. If it is None, the networks are read from the control
    cluster, and read again every 10 minutes.
    """

    configured: tuple[Network, ...] | None = None
    _found: list[str] = field(default_factory=list)
    _fresh_until: float = 0.0

    async def of(self, cluster: ClusterApi) -> list[str]:
        """Return the networks, at most `DENIED_NETWORKS_MAX`.

        More networks are replaced by larger ones that contain them.
        """
        if self.configured is not None:
            return [str(network) for network in self.configured]
        if time.monotonic() >= self._fresh_until:
            # Without the permission to read them, or before Kubernetes 1.33, only one
            # Service address is known.
            services = await _read(
                cluster, kinds.SERVICE_CIDR
            ) or await _address_of_api(cluster)
            self._found = bounded([*services, *await _read(cluster, kinds.NODE)])
            self._fresh_until = time.monotonic() + _FRESH_SECONDS
        return self._found


def bounded(texts: Iterable[str]) -> list[str]:
    """Merge networks, and widen the smallest ones until there are few enough.

    Invalid texts are left out.
    """
    networks = [network for text in texts if (network := _network(text))]
    four = _joined(
        [network for network in networks if isinstance(network, ipaddress.IPv4Network)]
    )
    six = _joined(
        [network for network in networks if isinstance(network, ipaddress.IPv6Network)]
    )
    return [str(network) for network in (*four, *six)]


def _joined(networks: list[N]) -> list[N]:
    networks = list(ipaddress.collapse_addresses(networks))
    while len(networks) > DENIED_NETWORKS_MAX // 2:
        longest = max(network.prefixlen for network in networks)
        wider = [
            network.supernet() if network.prefixlen == longest else network
            for network in networks
        ]
        networks = list(ipaddress.collapse_addresses(wider))
    return networks


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


async def _read(cluster: ClusterApi, kind: GroupVersionKind) -> list[str]:
    """Return the ranges in the objects of a kind.

    Returns none where the kind is not served, or the user may not read it.
    """
    try:
        listing = await cluster.list(Selection(kind), RANGES[kind])
    except (StackMissing, PermissionDenied, AnswerTooLarge):
        return []
    ranges: list[str] = []
    for found in listing.items:
        ranges += found
    return ranges


async def _address_of_api(cluster: ClusterApi) -> list[str]:
    service = await cluster.get(_API_SERVICE)
    return _texts((service or {}).get("spec"), "clusterIPs")


def _texts(fields: object, key: str) -> list[str]:
    found = fields.get(key) if isinstance(fields, dict) else None
    return (
        [text for text in found if isinstance(text, str)]
        if isinstance(found, list)
        else []
    )


RANGES: Mapping[GroupVersionKind, Keep] = {
    kinds.SERVICE_CIDR: lambda item: _texts(item.get("spec"), "cidrs"),
    kinds.NODE: lambda item: _texts(item.get("spec"), "podCIDRs"),
}
"""The kinds with networks, which are read if the user may list them."""
