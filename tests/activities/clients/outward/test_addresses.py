"""Refused hosts and addresses, in every spelling."""

from ipaddress import ip_network

import pytest

from activities.clients.outward.addresses import AddressRules, api_server_rules
from api_types.text.addresses import normalized_host

TENANTS = AddressRules()
CLUSTERS = api_server_rules(allow_loopback=False)

NEVER = {
    "127.0.0.1": "loopback",
    "127.8.9.10": "loopback",
    "0.0.0.0": "loopback",  # noqa: S104
    "0.1.2.3": "loopback",
    "::1": "loopback",
    "::": "loopback",
    "169.254.169.254": "link-local",
    "169.254.170.2": "link-local",
    "fe80::1": "link-local",
    "fe80::a9fe:a9fe": "link-local",
    "fe80::1%eth0": "link-local",
    "fd00:ec2::254": "metadata",
    "fd00:ec2::23": "metadata",
    "fd20:ce::254": "metadata",
    "100.100.100.200": "metadata",
    "168.63.129.16": "metadata",
    "192.0.0.192": "metadata",
    "224.0.0.1": "multicast",
    "ff02::1": "multicast",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:169.254.169.254": "link-local",
    "::127.0.0.1": "loopback",
    "::a9fe:a9fe": "link-local",
    "2002:7f00:1::": "loopback",
    "2002:a9fe:a9fe::1": "link-local",
    # Teredo: the server, and the client with its bits inverted.
    "2001:0:7f00:1::": "loopback",
    "2001:0:808:808::5601:5601": "link-local",
    "64:ff9b::7f00:1": "loopback",
    "64:ff9b::a9fe:a9fe": "link-local",
    "64:ff9b::6464:64c8": "metadata",
    "64:ff9b:1::a9fe:a9fe": "link-local",
    "64:ff9b:1:a9fe:a9:fe00::": "link-local",
}


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("rules", [TENANTS, CLUSTERS], ids=["tenants", "clusters"])
def test_an_address_that_is_never_connected_to(
    rules: AddressRules, address: str
) -> None:
    assert NEVER[address] in rules.refused_address(address)
    assert NEVER[address] in rules.refused_host(
        f"[{address}]" if ":" in address else address
    )


PRIVATE = [
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "fd12::1",
    "fec0::1",
    "::ffff:10.0.0.1",
    "240.0.0.1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_for_clusters_and_for_tenants_only_if_it_is_listed(
    address: str,
) -> None:
    assert CLUSTERS.refused_address(address) == ""
    assert "outbound.privateAddresses" in TENANTS.refused_address(address)
    everything = AddressRules(private=(ip_network("0.0.0.0/0"), ip_network("::/0")))
    assert everything.refused_address(address) == ""


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ],
)
@pytest.mark.parametrize("rules", [TENANTS, CLUSTERS], ids=["tenants", "clusters"])
def test_a_public_address_is_connected_to(rules: AddressRules, address: str) -> None:
    assert rules.refused_address(address) == ""


def test_loopback_and_metadata_are_not_listed_by_a_network_of_all_addresses() -> None:
    everything = AddressRules(private=(ip_network("0.0.0.0/0"), ip_network("::/0")))
    assert "loopback" in everything.refused_address("127.0.0.1")
    assert "loopback" in everything.refused_host("localhost")
    assert "metadata" in everything.refused_address("100.100.100.200")
    assert "link-local" in everything.refused_address("169.254.169.254")


def test_loopback_is_listed_by_a_network_within_it() -> None:
    rules = AddressRules(private=(ip_network("127.0.0.0/8"),))
    assert [rules.refused_address("127.0.0.1"), rules.refused_host("localhost")] == [
        "",
        "",
    ]
    assert "private" in rules.refused_address("10.0.0.1")
    assert "link-local" in api_server_rules(allow_loopback=True).refused_address(
        "169.254.169.254"
    )


WRITTEN = {
    "127\u30020\u30020\u30021": "loopback",
    "\u2460\u2461\u2466.0.0.1": "loopback",
    "\uff11\uff12\uff17\uff0e\uff10\uff0e\uff10\uff0e\uff11": "loopback",
    "2130706433": "loopback",
    "0x7f000001": "loopback",
    "0x7f.1": "loopback",
    "0177.0.0.1": "loopback",
    "127.1": "loopback",
    "127.0.0.1.": "loopback",
    "0": "loopback",
    "2852039166": "link-local",
    "localhost": "loopback name",
    "LOCALHOST.": "loopback name",
    "\uff4c\uff4f\uff43\uff41\uff4c\uff48\uff4f\uff53\uff54": "loopback name",
    "api.localhost": "loopback name",
    "ip6-loopback": "loopback name",
    "metadata.google.internal": "metadata",
    "Metadata.Google.Internal.": "metadata",
    "": "neither",
    "a..b": "neither",
    "a b": "neither",
    "%31%32%37.0.0.1": "neither",
    "x" * 300: "neither",
    "x." * 150 + "example": "neither",
    "1" * 5000: "neither",
    ":::1": "not an IP address",
    "-x": "neither",
    "a/b": "neither",
    "\ud800": "neither",
}


@pytest.mark.parametrize("host", WRITTEN, ids=lambda host: ascii(host)[:30])
@pytest.mark.parametrize("rules", [TENANTS, CLUSTERS], ids=["tenants", "clusters"])
def test_a_host_is_rejected_in_every_notation(rules: AddressRules, host: str) -> None:
    assert WRITTEN[host] in rules.refused_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "registry.example",
        "eu-1.Example.com.",
        "xn--bcher-kva.example",
        "b\xfccher.example",
        "a_b.example",
        "x",
    ],
)
def test_a_name_may_be_connected_to(host: str) -> None:
    assert TENANTS.refused_host(host) == ""
    assert normalized_host(host).isascii()
