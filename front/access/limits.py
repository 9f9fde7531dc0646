"""Limits the requests of each user, so that one user cannot starve the others.

A token bucket limits the rate of requests. Concurrent requests and watches have
separate limits. Unauthenticated callers are limited by address. Those limits do not
affect authenticated users, because many users may share an address.
"""

import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

KEPT_MAX = 10_000
"""The number of users or addresses that are remembered.

The least recently seen ones are dropped.
"""
CHECKED_MAX = 1000
"""The maximum number of requests that may wait for the keys of a token issuer.

The limit covers all addresses together.
"""
_BUSY_SECONDS = 1
_NETWORK_BITS = 64
_NOT_KNOWN = (
    "too many requests from this address without a valid token or certificate; "
    "try again later"
)


@dataclass(frozen=True)
class Allowance:
    """The limits of one user: sustained rate, burst, concurrent requests, and watches.

    `per_second` and `burst` also apply to each address of unauthenticated callers.
    """

    per_second: float
    burst: int
    requests: int
    watches: int


class TooMany(Exception):
    """A limit is reached.

    `seconds` is the whole number of seconds to wait, at least 1.
    """

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.message, self.seconds = message, max(1, ceil(seconds))


class Buckets:
    """Token buckets by name, each with `burst` tokens, refilled at `per_second`."""

    def __init__(self, allowance: Allowance, now: Callable[[], float]) -> None:
        """`now` returns monotonic seconds."""
        self._allowance, self._now = allowance, now
        # The remaining tokens and when they were counted. The most recently used bucket
        # is last.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def missing(self, name: str) -> float:
        """Return the seconds until a token is available, without taking one.

        Return 0 if a token is available.
        """
        return max(0.0, 1.0 - self._held(name)) / self._allowance.per_second

    def _held(self, name: str) -> float:
        burst, now = float(self._allowance.burst), self._now()
        left, since = self._left.get(name, (burst, now))
        return min(burst, left + (now - since) * self._allowance.per_second)

    def take(self, name: str) -> float:
        """Take a token and return 0, or return the seconds until one is available."""
        now, rate, left = self._now(), self._allowance.per_second, self._held(name)
        missing = max(0.0, 1.0 - left)
        self._left[name] = (left if missing else left - 1.0, now)
        self._left.move_to_end(name)
        if len(self._left) > KEPT_MAX:
            self._left.popitem(last=False)
        return missing / rate


class Limits:
    """Limits of users, of unauthenticated callers' addresses, and of page requests.

    An allowance of None disables all limits. Only tests use that.
    """

    def __init__(
        self, allowance: Allowance | None, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`now` returns monotonic seconds."""
        self._allowance = allowance
        self._users = Buckets(allowance, now) if allowance else None
        self._addresses = Buckets(allowance, now) if allowance else None
        # The page needs no authentication. Its buckets are separate, so that invalid
        # tokens from a shared address do not block the page for others there.
        self._pages = Buckets(allowance, now) if allowance else None
        self._requests: Counter[str] = Counter()
        self._watches: Counter[str] = Counter()
        self._checked: Counter[str] = Counter()

    def user_asks(self, name: str) -> None:
        """Count a request of a user. Raises `TooMany`."""
        if self._users and (seconds := self._users.take(name)):
            raise TooMany(
                f'too many requests of the user "{name}"; try again later', seconds
            )

    def address_asks(self, address: str) -> None:
        """Count a request of an unauthenticated caller. Raises `TooMany`."""
        if self._addresses and (seconds := self._addresses.take(_network(address))):
            raise TooMany(_NOT_KNOWN, seconds)

    @contextmanager
    def checking(self, address: str) -> Iterator[None]:
        """Admit the check of a token whose author is unknown.

        An address is rejected after too many invalid tokens. It may have as many checks
        at once as a user may have requests. Raises `TooMany`.
        """
        network = _network(address)
        if self._addresses and (seconds := self._addresses.missing(network)):
            raise TooMany(_NOT_KNOWN, seconds)
        if self._allowance and (
            self._checked[network] >= self._allowance.requests
            or self._checked.total() >= CHECKED_MAX
        ):
            raise TooMany(
                "too many tokens are waiting to be checked; try again later",
                _BUSY_SECONDS,
            )
        with _counted(self._checked, network):
            yield

    def page_asks(self, address: str) -> None:
        """Count a request for a file of the page, which needs no token.

        Raises `TooMany`.
        """
        if self._pages and (seconds := self._pages.take(_network(address))):
            raise TooMany(
                "too many requests from this address for the page; try again later",
                seconds,
            )

    @contextmanager
    def unknown(self, address: str) -> Iterator[None]:
        """Authenticate a caller.

        A failure counts as a request from the caller's address. Raises `TooMany`.
        """
        try:
            yield
        except Exception:
            self.address_asks(address)
            raise

    @contextmanager
    def admitted(self, name: str, *, watch: bool) -> Iterator[None]:
        """Count a request of a user, and occupy a slot while it is answered.

        Raises `TooMany`.
        """
        self.user_asks(name)
        with self.answering(name, watch=watch):
            yield

    @contextmanager
    def answering(self, name: str, *, watch: bool) -> Iterator[None]:
        """Occupy a slot for a request while it is answered. Raises `TooMany`."""
        counted = self._watches if watch else self._requests
        if self._allowance:
            limit = self._allowance.watches if watch else self._allowance.requests
            if counted[name] >= limit:
                kind = "watches" if watch else "concurrent requests"
                raise TooMany(
                    f'the user "{name}" has reached the limit of {limit} {kind}; '
                    "end some, or try again later",
                    _BUSY_SECONDS,
                )
        with _counted(counted, name):
            yield

    @contextmanager
    def sending(self, name: str) -> Iterator[None]:
        """Count an answer as a concurrent request while it is sent.

        It is never rejected, because the request has already been carried out.
        """
        with _counted(self._requests, name):
            yield


@contextmanager
def _counted(counts: Counter[str], name: str) -> Iterator[None]:
    counts[name] += 1
    try:
        yield
    finally:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]


def _network(address: str) -> str:
    """Return the part of an address that identifies a caller.

    For IPv6 it is the /64 network.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    return str(ipaddress.ip_network((found, _NETWORK_BITS), strict=False))
