"""The lobby: connections of callers that are not authenticated yet.

Every client in the network can open connections, send half of a request, and wait. Each
connection uses a file descriptor. So the lobby has a size limit and a time limit. A
connection leaves the lobby with its first authenticated request.
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
"""The lobby uses a quarter of the file descriptors.

The rest is for users, Temporal and files.
"""
_SWEEP_SECONDS = 1.0

Peer = tuple[Any, ...]
"""The address and port of a client, as returned by the socket module."""


class _Waiting(NamedTuple):
    connection: socket.socket
    since: float


class Lobby:
    """The waiting connections, oldest first.

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

    def leave(self, peer: Peer | None) -> None:
        """Remove a connection that is closed or authenticated."""
        if peer is not None and peer in self._waiting:
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
        """Close the connection and remove it from the lobby."""
        self._lobby.leave(self._peer)
        super().close()


def _default_size() -> int:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(_LOBBY_MAX, descriptors // _SHARE))
