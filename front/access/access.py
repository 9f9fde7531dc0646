"""Who may come in, and what they may do there: by the access file, certificates, an issuer of tokens, and an API server before us."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from cryptography import x509

from front.access.access_file import EVERYTHING, AccessRules, Attempt, Right, User
from front.access.certificates import of_connection
from front.access.id_tokens import IdTokens
from front.access.issuer import Admit
from front.access.request_header import Headers, Proxies, issued_by, read_certificate
from front.access.reviews import Reviews


class Access:
    """The users of a front and their rights. The access file is for all of them, reviews are for users whom an API server names.

    What one of the two allows is allowed.
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
        """Without any source everybody who reaches the front may do everything.

        `authorities`: those that sign certificates of users. They matter where there are `proxies` too: a handshake trusts both.
        `id_tokens`: of users who have the rights of `rules`.
        """
        self._rules, self._proxies, self._reviews, self._authorities = rules, proxies, reviews, authorities
        self._id_tokens = id_tokens

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return self._rules is None and self._proxies is None and self._reviews is None

    def refresh(self) -> str:
        """Read the access file again if it has changed; gives what is wrong with it, if it cannot be used."""
        return self._rules.refresh() if self._rules else ""

    async def learn(self, token: str | None, admit: Admit = nullcontext) -> None:
        """Have the keys at hand with which a token may be signed, so that `user_of` can tell whose it is.

        `admit` is entered for as long as a caller who may be anybody takes time, and may raise.
        """
        if token and self._id_tokens:
            await self._id_tokens.learn(token, admit)

    def user_of(self, token: str | None, headers: Headers, transport: Any, admit: Admit = nullcontext) -> User | None:
        """Give the user of a request: whom an API server names, or the bearer of its token, or of the certificate of its connection.

        `transport`: of the connection, over TLS or not; `admit`: as of `learn`. None for nobody. Raises `Unusable`, whoever else the
        request could be of.
        """
        tls = transport.get_extra_info("ssl_object") if transport else None
        presented: bytes | None = tls and tls.getpeercert(binary_form=True)
        certificate = read_certificate(presented) if presented else None
        if self._proxies and (user := self._proxies.user(certificate, headers)):
            return user
        if token is not None:
            known = self._rules.user_of(token) if self._rules else None
            return known or (self._id_tokens.user_of(token, admit) if self._id_tokens else None)
        if tls is None or certificate is None or (self._proxies and not issued_by(certificate, self._authorities)):
            return None
        held = of_connection(tls.getpeercert())
        return held.user() if held else None

    async def allows(self, user: User, attempt: Attempt) -> bool:
        """Tell whether a user may do something. Raises `Unanswered`."""
        if self.is_open or (self._rules and self._rules.allows(user, attempt)):
            return True
        return await self._reviews.allows(user, attempt) if self._reviews and self.is_reviewed(user) else False

    def is_reviewed(self, user: User) -> bool:
        """Whether an API server is asked, too, what a user may do."""
        # Of anybody else it would be asked about a user of its own who has the same name, or about its group system:masters.
        return self._reviews is not None and user.is_of_api_server

    def rights(self, user: User, namespace: str) -> tuple[Right, ...]:
        """Give what a user may do in a namespace, and with the kinds that have none, without what reviews allow."""
        if self.is_open:
            return (EVERYTHING,)
        return self._rules.rights(user, namespace) if self._rules else ()

    def close(self) -> None:
        """Ask nobody any more."""
        if self._reviews:
            self._reviews.close()
        if self._id_tokens:
            self._id_tokens.close()
