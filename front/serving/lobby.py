"""Limits the connections of a front, so that descriptors stay free for everybody.

Every client in the network can open connections, send half of a request, and wait. Each
connection uses a file descriptor. So the lobby, with the connections of callers that
are not authenticated yet, has a size limit and a time limit. A connection leaves the
lobby with its first authenticated request, and becomes a guest. A user with many guests
may have no more of them, but can still send requests on new connections.
"""

import asyncio
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

LOBBY_SECONDS = 30.0
"""The time limit for the first authenticated request on a connection."""
_LOBBY_MAX = 1024
_SHARE = 4
"""The lobby uses a quarter of the file descriptors."""
_GUESTS_SHARE = 2
"""Connections that users keep open may use half of the file descriptors."""
SURE = 16
"""The connections that each user may keep open, however many other users have."""
_SWEEP_SECONDS = 1.0

Peer = tuple[Any, ...]
"""The address and port of a client, as returned by the socket module."""


class _Waiting(NamedTuple):
    connection: socket.socket
    since: float


class Guests:
    """The connections of known users, by the user of the last request."""

    def __init__(self, size: int | None = None) -> None:
        """`size` defaults to half of the descriptors."""
        self.size = size or max(1, _descriptors() // _GUESTS_SHARE)
        self._users: dict[Peer, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._users)

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._users

    def admit(self, peer: Peer, user: str) -> None:
        """Count a connection, whose request names a user."""
        self.leave(peer)
        self._users[peer] = user
        self._counts[user] += 1

    def leave(self, peer: Peer) -> None:
        """Forget a connection that is closed."""
        if user := self._users.pop(peer, None):
            self._counts[user] -= 1
            if not self._counts[user]:
                del self._counts[user]

    def may_stay(self, peer: Peer) -> bool:
        """Return whether a connection may stay open after the response to its request.

        A connection of an unknown caller may: the lobby limits it.
        """
        user = self._users.get(peer)
        return user is None or self._counts[user] <= SURE or len(self) <= self.size


class Lobby:
    """The waiting connections, oldest first, and the guests.

    A full lobby closes the oldest connection of the source with the most connections.
    So one source with many connections does not block others. A caller that sends a
    whole request at once is served even if others hold many connections from the same
    address.
    """

    def __init__(
        self, size: int | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`size` defaults to a quarter of the descriptors.

        `now` returns monotonic seconds.
        """
        self.size = size or _default_size()
        self.guests = Guests()
        self._now = now
        self._waiting: dict[Peer, _Waiting] = {}
        self._by_source: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, peer: Peer, connection: socket.socket) -> None:
        """Add a new connection. A full lobby closes another one."""
        if len(self._waiting) >= self.size:
            ((source, _),) = self._by_source.most_common(1)
            self._end(next(each for each in self._waiting if each[0] == source))
        self._waiting[peer] = _Waiting(connection, self._now())
        self._by_source[str(peer[0])] += 1

    def admit(self, peer: Peer | None, user: str) -> None:
        """Count a connection as a guest, after its request has named a known user.

        A connection that is closed, or has no address any more, is ignored.
        """
        if peer is not None and (peer in self._waiting or peer in self.guests):
            self.leave(peer)
            self.guests.admit(peer, user)

    def end(self, peer: Peer) -> None:
        """Forget a connection that is closed."""
        self.leave(peer)
        self.guests.leave(peer)

    def leave(self, peer: Peer) -> None:
        """Remove a connection that is closed or authenticated."""
        if peer in self._waiting:
            del self._waiting[peer]
            source = str(peer[0])
            self._by_source[source] -= 1
            if not self._by_source[source]:
                del self._by_source[source]

    def end_late(self) -> None:
        """Close the connections whose time is over."""
        over = self._now() - LOBBY_SECONDS
        for peer in [
            peer for peer, waiting in self._waiting.items() if waiting.since <= over
        ]:
            self._end(peer)

    async def sweep(self) -> None:
        """Close late connections until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.end_late()

    def _end(self, peer: Peer) -> None:
        connection = self._waiting[peer].connection
        self.leave(peer)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The client has closed the connection. The transport notices that and
            # closes the socket.
            return


class LobbyListener(socket.socket):
    """A listening socket that adds connections to a lobby before the TLS handshake."""

    def __init__(self, listener: socket.socket, lobby: Lobby) -> None:
        """Take over a listening socket."""
        family, kind, protocol = listener.family, listener.type, listener.proto
        super().__init__(family, kind, protocol, fileno=listener.detach())
        self._lobby = lobby

    def accept(self) -> tuple[socket.socket, Peer]:
        """Accept a connection and add it to the lobby."""
        accepted, peer = super().accept()
        connection = _Connection(accepted, peer, self._lobby)
        self._lobby.enter(peer, connection)
        return connection, peer


class _Connection(socket.socket):
    def __init__(self, accepted: socket.socket, peer: Peer, lobby: Lobby) -> None:
        family, kind, protocol = accepted.family, accepted.type, accepted.proto
        super().__init__(family, kind, protocol, fileno=accepted.detach())
        self._peer, self._lobby = peer, lobby

    def close(self) -> None:
        """Close the connection, and remove it from the lobby and the guests."""
        self._lobby.end(self._peer)
        super().close()


def _default_size() -> int:
    return max(1, min(_LOBBY_MAX, _descriptors() // _SHARE))


def _descriptors() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit
