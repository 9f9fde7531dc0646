"""Forbidden endpoint addresses: unroutable ones, and networks that an operator denies."""

import ipaddress
import itertools
from collections.abc import Sequence

from api_types.text.addresses import meant, normalized_host, written_address
from api_types.text.endpoint_url import EndpointUrl

DENY_SETTING = "controlCluster.endpointDenyCidrs"
# Names of Services of the control cluster, which resolve to denied addresses.
_CLUSTER_DOMAINS = (".svc", ".cluster.local")


def address_problems(url: EndpointUrl, denied: Sequence[str]) -> tuple[str, ...]:
    """Return the reasons why the host of a URL cannot be routed to.

    `denied` are networks, such as `10.96.0.0/12`. Problems that `EndpointUrl` reports
    are not repeated. A DNS name is not resolved, because it may resolve to another
    address with each request.
    """
    if not url.host:
        return ()
    name = normalized_host(url.host)
    if not name or "%" in url.host:
        return (
            f'"{url.host}" is neither a host name nor an address that a route can have',
        )
    text = written_address(name)
    if not text:
        is_service = bool(denied) and name.endswith(_CLUSTER_DOMAINS)
        return (
            (f"{name} is the name of a Service of the control cluster{_unless()}",)
            if is_service
            else ()
        )
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return (f'"{url.host}" is not an address',)
    found = list(dict.fromkeys([address, *meant(address)]))
    problems = []
    for each, network in itertools.product(found, denied):
        if each in ipaddress.ip_network(network):
            other = "" if str(each) == url.host else f"{each}, "
            problems.append(f"{url.host} is {other}in {network}{_unless()}")
    if url.is_name:
        problems.append(
            f"{url.host} is another spelling of the address {address}: write that"
        )
    elif isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        problems.append(
            f"{url.host} is another spelling of the address {address.ipv4_mapped}: write that"
        )
    if any(each.is_unspecified or each.is_multicast for each in found):
        problems.append(f"{url.host} is not the address of one host")
    if any(each.is_loopback or each.is_link_local for each in found if each != address):
        problems.append(
            f"{url.host} stands for a loopback or link-local address, which no route may use"
        )
    return tuple(problems)


def _unless() -> str:
    return f", where endpoints may not be ({DENY_SETTING})"
