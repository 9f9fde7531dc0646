"""URLs of endpoints, as routes use them."""

import pytest

from api_types.text.endpoint_url import read_url, rewrite_path_problems

USABLE = [
    ("http://34.55.100.10/v1", "34.55.100.10", 80),
    ("https://api.together.xyz/v1", "api.together.xyz", 443),
    ("http://[2001:db8::1]/v1", "2001:db8::1", 80),
    ("http://[2001:db8::1]:8080/v1", "2001:db8::1", 8080),
    ("HTTPS://API.Example.COM:8443/x", "api.example.com", 8443),
    ("http://host.example:/x", "host.example", 80),
    ("https://host.example:65535", "host.example", 65535),
    ("https://host.example:1", "host.example", 1),
    ("https://host.example:00080", "host.example", 80),
]


@pytest.mark.parametrize(
    ("url", "host", "port"), USABLE, ids=[f"{row[0]}" for row in USABLE]
)
def test_a_usable_url_gives_host_and_port(url: str, host: str, port: int) -> None:
    read = read_url(url)
    assert (read.host, read.port, read.problems) == (host, port, ())


UNUSABLE = [
    ("not-a-url", True),
    ("https://host:abc", True),
    ("http://h.example:99999", True),
    ("https://h.example:0", True),
    ("https://h.example:" + "9" * 5000, True),
    ("https://h.example:" + "0" * 5000, True),
    ("http://user:pw@h.example/", True),
    ("http://[::1", True),
    ("", True),
    ("ftp://h.example/", False),
    ("//h.example/", False),
    ("http://localhost:8000", False),
    ("http://svc:8000", False),
    ("http://127.0.0.1", False),
    ("http://169.254.169.254", False),
    ("http://[fe80::1]/", False),
]


@pytest.mark.parametrize(
    ("url", "refused"), UNUSABLE, ids=[f"{row[0]}" for row in UNUSABLE]
)
def test_an_unusable_url_has_a_reason_and_only_some_are_rejected_at_admission(
    url: str, refused: bool
) -> None:
    read = read_url(url)
    assert read.problems
    assert bool(read.errors) is refused


PATHS = [
    ("/", True),
    ("/v1/", True),
    ("/" + "a" * 1023, True),
    ("/" + "a" * 1024, False),
    ("v1", False),
    ("//", False),
    ("/a/../b", False),
    ("/..", False),
]


@pytest.mark.parametrize(
    ("path", "usable"),
    PATHS,
    ids=[f"{path[:8]} of {len(path)}" for path, _ in PATHS],
)
def test_a_rewrite_path_is_one_that_a_route_can_carry(path: str, usable: bool) -> None:
    assert (rewrite_path_problems(path) == ()) is usable
