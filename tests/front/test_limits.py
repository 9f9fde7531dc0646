"""Limits per user, with a test clock, and the answers to clients."""

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from front.access import limits as module
from front.access.limits import Allowance, Buckets, Limits, TooMany
from front.serving import access_reviews
from front.serving.reads import watching
from tests.front.fleet_of_tenants import Fleet, a_fleet
from tests.workflows.environment.harness import eventually

PATH = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments"
ALLOWANCE = Allowance(per_second=2, burst=3, requests=2, watches=2)


class Clock:
    """A clock in seconds."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def fleet(tmp_path: Path, clock: Clock) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path, limits=Limits(ALLOWANCE, clock)) as fleet:
        yield fleet


def test_a_bucket_allows_its_burst_at_once_then_its_rate(clock: Clock) -> None:
    buckets = Buckets(ALLOWANCE, clock)
    assert [buckets.take("ann") for _ in range(4)] == [0, 0, 0, 0.5]
    # Rejected requests take no token.
    assert [buckets.take("ann") for _ in range(3)] == [0.5, 0.5, 0.5]
    assert buckets.take("bob") == 0
    clock.now += 0.5
    assert [buckets.take("ann"), buckets.take("ann")] == [0, 0.5]
    clock.now += 3600
    assert [buckets.take("ann") for _ in range(4)] == [0, 0, 0, 0.5]


@pytest.mark.parametrize(
    ("seconds", "told"), [(-3.0, 1), (0.0, 1), (0.2, 1), (1.0, 1), (1.2, 2)]
)
def test_the_retry_time_is_never_too_early(seconds: float, told: int) -> None:
    assert TooMany("too many", seconds).seconds == told


def test_concurrent_token_checks_of_all_addresses_are_limited(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKED_MAX", 2)
    limits = Limits(ALLOWANCE, clock)
    checked = [limits.checking(f"192.0.2.{number}") for number in range(4)]
    with checked[0], checked[1], pytest.raises(TooMany, match="too many tokens"):
        checked[2].__enter__()
    with checked[3]:
        pass


def test_the_memory_of_callers_is_bounded(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_MAX", 2)
    buckets = Buckets(ALLOWANCE, clock)
    for _ in range(3):
        for name in ("ann", "bob"):
            assert buckets.take(name) == 0
    assert buckets.take("ann") > 0
    assert buckets.take("carl") == 0
    assert len(buckets._left) == 2
    # Bob's last request is the oldest.
    assert buckets.take("ann") > 0


def test_an_ipv6_network_counts_as_one_caller_but_ipv4_addresses_do_not(
    clock: Clock,
) -> None:
    limits = Limits(ALLOWANCE, clock)
    for last in range(3):
        limits.address_asks(f"2001:db8::{last}")
        limits.address_asks(f"192.0.2.{last}")
    limits.address_asks("192.0.2.9")
    limits.address_asks("2001:db8:0:1::1")
    with pytest.raises(TooMany):
        limits.address_asks("2001:db8::9%eth0")


async def test_too_many_requests_get_a_retry_time_without_affecting_other_users(
    fleet: Fleet, clock: Clock
) -> None:
    assert [(await fleet.ask("GET", PATH))[0] for _ in range(3)] == [200, 200, 200]
    for method, path in (
        ("GET", PATH),
        ("POST", PATH),
        ("GET", "/version"),
        ("GET", f"{PATH}/none"),
        ("GET", "/nothing"),
    ):
        status, body, headers = await fleet.answer(
            method, path, body=b"{}" if method == "POST" else None
        )
        told = json.loads(body)
        assert (status, told["kind"], told["reason"], told["details"]) == (
            429,
            "Status",
            "TooManyRequests",
            {"retryAfterSeconds": 1},
        )
        assert headers["Retry-After"] == "1"
    assert fleet.plane.touched == []
    assert (await fleet.ask("GET", PATH, user="root"))[0] == 200
    # Health checks are always answered.
    assert (await fleet.ask("GET", "/healthz", user=""))[0] == 200
    clock.now += 0.5
    assert [(await fleet.ask("GET", PATH))[0] for _ in range(2)] == [200, 429]


async def test_callers_without_a_token_are_limited_by_address_without_affecting_users(
    fleet: Fleet,
) -> None:
    assert [(await fleet.ask("POST", PATH, user=""))[0] for _ in range(5)] == [
        401,
        401,
        401,
        429,
        429,
    ]
    assert (await fleet.ask("GET", PATH, user="", Authorization="Bearer wrong"))[
        0
    ] == 429
    assert (await fleet.ask("GET", PATH))[0] == 200


async def test_files_of_the_page_are_limited_by_address_and_its_settings_by_user(
    fleet: Fleet,
) -> None:
    paths = ("/", "/ui/main.js", "/ui/page.css")
    assert [
        (await fleet.ask("GET", path, user="", Accept="text/html"))[0]
        for path in paths * 2
    ] == [200] * 3 + [429] * 3
    assert [(await fleet.ask("GET", "/ui/settings.json"))[0] for _ in range(4)] == [
        200,
        200,
        200,
        429,
    ]


async def test_callers_without_a_token_and_requests_for_the_page_do_not_limit_each_other(
    fleet: Fleet, clock: Clock
) -> None:
    assert [(await fleet.ask("POST", PATH, user=""))[0] for _ in range(4)] == [
        401,
        401,
        401,
        429,
    ]
    assert [
        (await fleet.ask("GET", "/", user="", Accept="text/html"))[0] for _ in range(4)
    ] == [200, 200, 200, 429]
    clock.now += 2
    assert [
        (await fleet.ask("GET", "/", user="", Accept="text/html"))[0] for _ in range(4)
    ] == [200, 200, 200, 429]
    assert [(await fleet.ask("POST", PATH, user=""))[0] for _ in range(4)] == [
        401,
        401,
        401,
        429,
    ]


async def test_watches_of_one_user_are_limited_until_one_ends(
    fleet: Fleet, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.1)
    headers = {"Authorization": "Bearer token-of-ann"}
    async with (
        fleet.client.get(f"{PATH}?watch=true", headers=headers),
        fleet.client.get(f"{PATH}?watch=1", headers=headers),
    ):
        status, body = await fleet.ask("GET", f"{PATH}?watch=true")
        assert (status, json.loads(body)["message"]) == (
            429,
            (
                'the user "ann" has reached the limit of 2 watches; '
                "end some, or try again later"
            ),
        )
        clock.now += 10
        assert (await fleet.ask("GET", PATH))[0] == 200
        async with fleet.client.get(
            f"{PATH}?watch=true", headers={"Authorization": "Bearer token-of-root"}
        ) as other:
            assert other.status == 200

    async def watched() -> int:
        clock.now += 1
        async with fleet.client.get(f"{PATH}?watch=true", headers=headers) as answer:
            return answer.status

    await eventually(watched, lambda status: status == 200, what="room for a watch")


def test_concurrent_requests_are_limited_until_one_ends(
    clock: Clock,
) -> None:
    limits = Limits(ALLOWANCE, clock)
    with limits.answering("ann", watch=False):
        with limits.answering("ann", watch=False):
            with (
                pytest.raises(
                    TooMany,
                    match='the user "ann" has reached the limit of 2 concurrent requests',
                ),
                limits.answering("ann", watch=False),
            ):
                pass
            with (
                limits.answering("ann", watch=True),
                limits.answering("bob", watch=False),
            ):
                pass
        with limits.answering("ann", watch=False):
            pass
    with suppress(ZeroDivisionError), limits.answering("ann", watch=False):
        raise ZeroDivisionError
    assert not limits._requests
    assert not limits._watches


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", PATH),
        ("PUT", f"{PATH}/mine/scale"),
        ("DELETE", PATH),
        ("POST", access_reviews.PATH),
    ],
)
async def test_compressed_bodies_are_rejected_for_every_path(
    tmp_path: Path, method: str, path: str
) -> None:
    async with a_fleet(tmp_path) as fleet:
        for body in (b"no gzip", gzip.compress(b"{}")):
            status, answer = await fleet.ask(
                method, path, body=body, **{"Content-Encoding": "gzip"}
            )
            assert (status, json.loads(answer)["reason"]) == (
                415,
                "UnsupportedMediaType",
            )
        assert fleet.plane.touched == []
