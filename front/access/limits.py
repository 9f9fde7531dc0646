"""How much one user may ask for, so that no one keeps the front from answering others.

Requests are counted by a token bucket, those that are being answered and watches by themselves. Of callers who are not known the address
is limited, and it limits no user: many come from behind one address.
"""

import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

KEPT_MAX = 10_000
"""Users, or addresses, whose last requests are remembered; beyond, those who asked least recently are forgotten."""
CHECKED_MAX = 1000
"""Requests, of all addresses, for which the keys of an issuer of tokens are waited for."""
_BUSY_SECONDS = 1
_NETWORK_BITS = 64
_NOT_KNOWN = "too many requests from this address without a valid token or certificate; ask again later"


@dataclass(frozen=True)
class Allowance:
    """What one user may do: requests per second in the long run, at once after a pause, being answered, and watches.

    `per_second` and `burst` hold for each address too, of callers who are not known.
    """

    per_second: float
    burst: int
    requests: int
    watches: int


class TooMany(Exception):
    """A limit is reached; `seconds`: after how many whole seconds it is worth to ask again, at least 1."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.message, self.seconds = message, max(1, ceil(seconds))


class Buckets:
    """A token bucket for each name: `burst` tokens, of which `per_second` come back."""

    def __init__(self, allowance: Allowance, now: Callable[[], float]) -> None:
        """`now` gives seconds that never go back."""
        self._allowance, self._now = allowance, now
        # The tokens that were left at a time, the last used at the end.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def missing(self, name: str) -> float:
        """Give 0 if there is a token, or in how many seconds there is one; takes none."""
        return max(0.0, 1.0 - self._held(name)) / self._allowance.per_second

    def _held(self, name: str) -> float:
        burst, now = float(self._allowance.burst), self._now()
        left, since = self._left.get(name, (burst, now))
        return min(burst, left + (now - since) * self._allowance.per_second)

    def take(self, name: str) -> float:
        """Take a token; gives 0, or in how many seconds there is one."""
        now, rate, left = self._now(), self._allowance.per_second, self._held(name)
        missing = max(0.0, 1.0 - left)
        self._left[name] = (left if missing else left - 1.0, now)
        self._left.move_to_end(name)
        if len(self._left) > KEPT_MAX:
            self._left.popitem(last=False)
        return missing / rate


class Limits:
    """The limits of all users, and of addresses: of callers who are not known, and of those for the page.

    None for an allowance: there are none, which is for tests alone.
    """

    def __init__(self, allowance: Allowance | None, now: Callable[[], float] = time.monotonic) -> None:
        """`now` gives seconds that never go back."""
        self._allowance = allowance
        self._users = Buckets(allowance, now) if allowance else None
        self._addresses = Buckets(allowance, now) if allowance else None
        # The page is for everybody: behind an address that many share, it is not kept from them by one who sends wrong tokens.
        self._pages = Buckets(allowance, now) if allowance else None
        self._requests: Counter[str] = Counter()
        self._watches: Counter[str] = Counter()
        self._checked: Counter[str] = Counter()

    def user_asks(self, name: str) -> None:
        """Count a request of a user. Raises `TooMany`."""
        if self._users and (seconds := self._users.take(name)):
            raise TooMany(f'too many requests of the user "{name}"; ask again later', seconds)

    def address_asks(self, address: str) -> None:
        """Count a request of a caller who is not known. Raises `TooMany`."""
        if self._addresses and (seconds := self._addresses.take(_network(address))):
            raise TooMany(_NOT_KNOWN, seconds)

    @contextmanager
    def checking(self, address: str) -> Iterator[None]:
        """Look at a token that anybody may have written, as long as its address has not sent too many wrong ones. Raises `TooMany`.

        Of one address as many are looked at, or wait, at once as requests of one user.
        """
        network = _network(address)
        if self._addresses and (seconds := self._addresses.missing(network)):
            raise TooMany(_NOT_KNOWN, seconds)
        if self._allowance and (self._checked[network] >= self._allowance.requests or self._checked.total() >= CHECKED_MAX):
            raise TooMany("too many tokens are waiting to be checked; ask again later", _BUSY_SECONDS)
        with _counted(self._checked, network):
            yield

    def page_asks(self, address: str) -> None:
        """Count a request for a file of the page, which needs no token. Raises `TooMany`."""
        if self._pages and (seconds := self._pages.take(_network(address))):
            raise TooMany("too many requests from this address for the page; ask again later", seconds)

    @contextmanager
    def unknown(self, address: str) -> Iterator[None]:
        """Find out who asks: what fails before that is counted as a request from its address. Raises `TooMany`."""
        try:
            yield
        except Exception:
            self.address_asks(address)
            raise

    @contextmanager
    def admitted(self, name: str, *, watch: bool) -> Iterator[None]:
        """Count a request of a user, and for as long as it is being answered. Raises `TooMany`."""
        self.user_asks(name)
        with self.answering(name, watch=watch):
            yield

    @contextmanager
    def answering(self, name: str, *, watch: bool) -> Iterator[None]:
        """Count a request for as long as it is being answered. Raises `TooMany`."""
        counted, what = (self._watches, "watches") if watch else (self._requests, "requests at once")
        most = (self._allowance.watches if watch else self._allowance.requests) if self._allowance else None
        if most is not None and counted[name] >= most:
            raise TooMany(f'the user "{name}" has {most} {what}, which is the most; end some, or ask again later', _BUSY_SECONDS)
        with _counted(counted, name):
            yield

    @contextmanager
    def sending(self, name: str) -> Iterator[None]:
        """Count an answer for as long as it is being sent, as a request that is being answered; what is done already is not refused."""
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
    """Give what one caller has of the addresses: of IPv6 a whole network."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, _NETWORK_BITS), strict=False)) if found.version == 6 else address  # noqa: PLR2004 - IPv6
