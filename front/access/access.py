"""Authenticates users and authorizes their requests.

Sources are the access file, client certificates, an issuer of ID tokens, and an
aggregating API server.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from cryptography import x509

from front.access.access_file import EVERYTHING, AccessRules, Attempt, PolicyRule, User
from front.access.certificates import of_connection
from front.access.id_tokens import IdTokens
from front.access.issuer import Admit
from front.access.request_header import Headers, Proxies, issued_by, read_certificate
from front.access.reviews import Reviews


class AccessControl:
    """The users of a front and their rights.

    The access file applies to every user. Reviews apply only to users whom an API
    server has authenticated. A request is allowed if the access file or a review allows
    it.
    """

    def __init__(
        self,
        rules: AccessRules | None = None,
        *,
        proxies: Proxies | None = None,
        reviews: Reviews | None = None,
        authorities: Sequence[x509.Certificate] = (),
        id_tokens: IdTokens | None = None,
    ) -> None:
        """Configure the sources of users and rights.

        Without any source, everybody who reaches the front may do everything.
        `authorities` sign client certificates of users. A TLS handshake also accepts
        certificates of proxies, so a certificate must be checked against `authorities`.
        Users with ID tokens have the rights that `rules` grant them.
        """
        self._rules = rules
        self._proxies = proxies
        self._reviews = reviews
        self._authorities = authorities
        self._id_tokens = id_tokens

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return self._rules is None and self._proxies is None and self._reviews is None

    def refresh(self) -> str:
        """Reload the access file if it has changed.

        Returns an error if the file cannot be used, else an empty string.
        """
        return self._rules.refresh() if self._rules else ""

    async def learn(self, token: str | None, admit: Admit = nullcontext) -> None:
        """Load the keys that may have signed a token, so that `user_of` can verify it.

        The context `admit` is entered while the front loads keys for an unauthenticated
        caller. It may raise to reject the caller.
        """
        if token and self._id_tokens:
            await self._id_tokens.learn(token, admit)

    def user_of(
        self,
        token: str | None,
        headers: Headers,
        transport: Any,
        admit: Admit = nullcontext,
    ) -> User | None:
        """Return the user of a request, or None if it is not authenticated.

        A user that an API server names comes first, then the bearer of the token, then
        the subject of the client certificate. `transport` is the connection's
        transport, with or without TLS; `admit` is described at `learn`. Raises
        `InvalidUserHeader` if an API server names an invalid user, even if the request
        has other credentials.
        """
        tls = transport.get_extra_info("ssl_object") if transport else None
        presented: bytes | None = tls and tls.getpeercert(binary_form=True)
        certificate = read_certificate(presented) if presented else None
        if self._proxies and (user := self._proxies.user(certificate, headers)):
            return user
        if token is not None:
            known = self._rules.user_of(token) if self._rules else None
            if known is None and self._id_tokens:
                known = self._id_tokens.user_of(token, admit)
            return known
        if (
            tls is None
            or certificate is None
            or (self._proxies and not issued_by(certificate, self._authorities))
        ):
            return None
        held = of_connection(tls.getpeercert())
        return held.user() if held else None

    async def allows(self, user: User, attempt: Attempt) -> bool:
        """Return whether a user may make an attempt. Raises `Unanswered`."""
        if self.is_open or (self._rules and self._rules.allows(user, attempt)):
            return True
        if self._reviews and self.is_reviewed(user):
            return await self._reviews.allows(user, attempt)
        return False

    def is_reviewed(self, user: User) -> bool:
        """Return whether SubjectAccessReviews decide about a user too."""
        # For other users, the API server would decide about its own user of the same
        # name, or about its group system:masters.
        return self._reviews is not None and user.is_of_api_server

    def rights(self, user: User, namespace: str) -> tuple[PolicyRule, ...]:
        """Return the user's rights in a namespace and on cluster-scoped kinds.

        Rights that only an API server's reviews would grant are not included.
        """
        if self.is_open:
            return (EVERYTHING,)
        return self._rules.rights(user, namespace) if self._rules else ()

    def close(self) -> None:
        """Stop reviews and the loading of keys."""
        if self._reviews:
            self._reviews.close()
        if self._id_tokens:
            self._id_tokens.close()
