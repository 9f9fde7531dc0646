"""Forbidden addresses of endpoints, in every spelling."""

import pytest

from api_types.text.endpoint_address import DENY_SETTING, address_problems
from api_types.text.endpoint_url import read_url

DENIED = ("10.96.0.0/16", "10.244.0.0/20", "fd00:10:96::/112")

USABLE = [
    "http://34.55.100.10/v1",
    "http://10.245.0.1",
    "http://10.97.0.1",
    "http://[2001:db8::1]/v1",
    "https://api.together.xyz/v1",
    "https://API.Together.xyz:8443",
    "https://api.svc.example.com",
    "https://10.96.0.1.example.com",
    "http://1e3.example",
]


@pytest.mark.parametrize("url", USABLE)
def test_an_address_outside_denied_networks_is_usable(url: str) -> None:
    assert address_problems(read_url(url), DENIED) == ()


UNUSABLE = {
    "http://10.96.0.1/v1": "10.96.0.1 is in 10.96.0.0/16",
    "https://10.96.255.255:8443": "in 10.96.0.0/16",
    "http://10.244.15.1": "in 10.244.0.0/20",
    "http://[fd00:10:96::1]": "in fd00:10:96::/112",
    "http://[FD00:10:96:0:0:0:0:1]": "in fd00:10:96::/112",
    "http://[::ffff:10.96.0.1]": "in 10.96.0.0/16",
    "http://[::ffff:a60:1]": "in 10.96.0.0/16",
    "http://[::ffff:34.55.100.10]": "another spelling of the address 34.55.100.10",
    "http://[::10.96.0.1]": "in 10.96.0.0/16",
    "http://[2002:a60:1::]": "in 10.96.0.0/16",
    "http://[64:ff9b::a60:1]": "in 10.96.0.0/16",
    "http://[64:ff9b::7f00:1]": "stands for a loopback",
    "http://10.96.1": "in 10.96.0.0/16",
    "http://0xa.0x60.0.1": "in 10.96.0.0/16",
    "http://012.0140.0.1": "in 10.96.0.0/16",
    "http://174063617": "in 10.96.0.0/16",
    "http://10.96.0.1.": "in 10.96.0.0/16",
    "http://10\u300296\u30020\u30021": "in 10.96.0.0/16",
    "http://\uff10\uff58\uff41.0x600001": "is 10.96.0.1, in 10.96.0.0/16",
    "http://34.55.25610": "another spelling of the address 34.55.100.10",
    "http://0.0.0.0": "is not the address of one host",
    "http://224.0.0.1": "is not the address of one host",
    "http://[fe80::1%25eth0]": "neither a host name nor an address",
    "http://a_b..c/": "neither a host name nor an address",
    "http://kubernetes.default.svc": "the name of a Service of the control cluster",
    "http://vault.infra.svc.cluster.local.:8200": "the name of a Service of the control cluster",
}


@pytest.mark.parametrize("url", UNUSABLE)
def test_a_denied_address_is_recognized_in_every_spelling(url: str) -> None:
    assert UNUSABLE[url] in "; ".join(
        [*address_problems(read_url(url), DENIED), *read_url(url).problems]
    )


def test_a_denied_address_names_the_setting_and_nothing_is_denied_without_networks() -> (
    None
):
    assert address_problems(read_url("http://10.96.0.1"), DENIED) == (
        f"10.96.0.1 is in 10.96.0.0/16, where endpoints may not be ({DENY_SETTING})",
    )
    assert address_problems(read_url("http://10.96.0.1"), ()) == ()
    assert address_problems(read_url("http://vllm.ml.svc.cluster.local"), ()) == ()
    assert address_problems(read_url("not-a-url"), DENIED) == ()
