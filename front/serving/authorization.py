"""Authenticates the callers of requests, limits them, and checks their rights."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import structlog
from aiohttp import hdrs, web

from front.access.access import AccessControl
from front.access.access_file import ANYBODY, Attempt, User
from front.access.issuer import Admit
from front.access.limits import Limits
from front.access.request_header import InvalidUserHeader
from front.access.reviews import Unanswered
from front.access.tokens import API_KEY, Token, bearer_token
from front.serving import errors
from front.serving.auditing import note_user
from front.serving.lobby import Lobby, Peer
from front.serving.requests import RequestedResource

log = structlog.get_logger("modelplane.front")

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Authorization:
    """The users of a front, their limits and their rights."""

    def __init__(self, access: AccessControl, limits: Limits, lobby: Lobby) -> None:
        """Open `access` is only for loopback addresses."""
        self.access = access
        self.limits = limits
        self._lobby = lobby

    @contextmanager
    def admitted(
        self, request: web.Request, token: Token = bearer_token, *, watch: bool = False
    ) -> Iterator[User]:
        """Authenticate a request, and count it as concurrent while the context is open.

        `token` extracts the token from the headers. Raises `RejectedRequest` and
        `TooMany`.
        """
        with self.limits.unknown(request.remote or ""):
            user = self.user_of(
                request, token, lambda: self.limits.checking(request.remote or "")
            )
        self.note_known(request, user)
        with self.limits.admitted(user.name, watch=watch):
            if any(name.lower().startswith("impersonate-") for name in request.headers):
                raise errors.RejectedRequest(
                    403,
                    "Forbidden",
                    "impersonation is not supported; use a token of that user",
                )
            yield user

    def note_known(self, request: web.Request, user: User) -> None:
        """Record the user of a request. Its connection leaves the lobby as a guest."""
        note_user(request, user)
        self._lobby.admit(_peer(request), user.name)

    async def announce_end(
        self, request: web.Request, response: web.StreamResponse
    ) -> None:
        """Announce in the headers of a response that its connection is closed."""
        if self._is_surplus(request):
            response.force_close()
            response.headers[hdrs.CONNECTION] = "close"

    def end_surplus(self, request: web.Request) -> None:
        """Close the connection of a user with too many guests after a response.

        Otherwise the server would wait for the rest of the request.
        """
        if request.transport is not None and self._is_surplus(request):
            request.transport.close()

    def _is_surplus(self, request: web.Request) -> bool:
        peer = _peer(request)
        return peer is not None and not self._lobby.guests.may_stay(peer)

    def user_of(
        self,
        request: web.Request,
        token: Token = bearer_token,
        admit: Admit = nullcontext,
    ) -> User:
        """Authenticate a request without counting it.

        Raises `RejectedRequest`, and the exceptions of `admit` if the token must be
        verified.
        """
        if self.access.is_open:
            # A web page in a local browser could send requests to this server under a
            # host name of the page's owner (DNS rebinding).
            if "Origin" in request.headers or _host(request) not in _LOOPBACK:
                raise errors.RejectedRequest(
                    403,
                    "Forbidden",
                    "without an access file, the server only accepts requests of programs "
                    "on this machine",
                )
            return ANYBODY
        self.refresh()
        try:
            user = self.access.user_of(
                _token(request, token), request.headers, request.transport, admit
            )
        except InvalidUserHeader as problem:
            raise errors.unauthorized(f"Unauthorized: {problem}") from None
        if user is None:
            raise errors.unauthorized()
        return user

    @property
    def is_open(self) -> bool:
        """Whether everybody who reaches this server may do everything."""
        return self.access.is_open

    async def learn(
        self,
        request: web.Request,
        token: Token = bearer_token,
        admit: Admit = nullcontext,
    ) -> None:
        """Load the token issuer's keys if necessary, before the token is verified."""
        await self.access.learn(_token(request, token), admit)

    def refresh(self) -> None:
        """Reload the access file if it has changed."""
        if problem := self.access.refresh():
            log.error(
                "cannot load the access file; its previous content stays in use",
                problem=problem,
            )

    async def authorize(
        self, user: User, resource: RequestedResource, verb: str
    ) -> None:
        """Raise `RejectedRequest` if a user lacks the right to the resource.

        The error is the same whether or not the object exists.
        """
        self.refresh()
        attempt = resource.attempt(verb)
        if await self._allows(user, attempt):
            return
        scope = (
            f'in the namespace "{resource.namespace}"'
            if resource.namespace
            else "at the cluster scope"
        )
        info = resource.info
        message = (
            f'User "{user.name}" cannot {verb} resource "{resource.plural}" in API group '
            f'"{info.group}" {scope}'
        )
        raise errors.forbidden(*resource.identity, message)

    async def _allows(self, user: User, attempt: Attempt) -> bool:
        try:
            return await self.access.allows(user, attempt)
        except Unanswered as silence:
            raise errors.undecided() from silence


def _peer(request: web.Request) -> Peer | None:
    """Return the address of the client; None if the connection is closed."""
    if request.transport is None:
        return None
    peer: Peer | None = request.transport.get_extra_info("peername")
    return peer


def _token(request: web.Request, read_token: Token) -> str | None:
    return read_token(
        request.headers.getall("Authorization", []), request.headers.getall(API_KEY, [])
    )


def _host(request: web.Request) -> str:
    """Return the host that a request names; an empty string if there is none."""
    try:
        return request.url.host or ""
    except ValueError:
        return ""
