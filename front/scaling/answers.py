"""Remembers the answers to signed requests, so that repeats change nothing.

The deployment's workflow also remembers its last requests, for other fronts and after
restarts, but only a limited number. It would treat an id that is used for a different
request as a repeat. This module rejects such a request.
"""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from front.access.limits import TooMany
from front.access.signing import WINDOW_SECONDS, SignedRequest
from front.serving import errors
from front.store.projection import Tree

_OF_CALLER_MAX = 10_000
# A request's timestamp may be ahead by the window, and is valid for another window.
_KEPT_SECONDS = 2 * WINDOW_SECONDS
_UNAVAILABLE = 503


@dataclass
class _ReceivedRequest:
    """A request that was received.

    `since` is the time of its last repetition, and `content` a digest of the request.
    `answer` is JSON, and is empty until the answer is known.
    """

    since: float
    content: bytes
    answer: bytes = b""
    asking: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_over(self, now: float) -> bool:
        """Return whether the signature is no longer valid and no answer is pending."""
        return not self.asking and self.since + _KEPT_SECONDS < now


class IdempotentRequests:
    """The requests of each caller, least recent first.

    The limit is per caller, so no caller displaces the requests of another.
    """

    def __init__(self) -> None:
        self._made: dict[str, OrderedDict[str, _ReceivedRequest]] = {}

    async def once(
        self,
        signed: SignedRequest,
        content: bytes,
        now: float,
        carry_out: Callable[[], Awaitable[Tree]],
    ) -> Tree:
        """Carry out a request, or return the answer to its first occurrence.

        A repeat waits while the request is carried out. `content` is the whole request,
        `now` is in seconds since 1970. Raises the exceptions of `carry_out`,
        `RejectedRequest` (409) if the id was used for a different request, and
        `TooMany` if the caller has too many requests that may still be repeated.
        """
        request = self._request(signed, hashlib.sha256(content).digest(), now)
        request.asking += 1
        try:
            async with request.turn:
                if not request.answer:
                    request.answer = json.dumps(await carry_out()).encode()
        except (errors.RejectedRequest, TooMany) as refusal:
            # The request may have been carried out, so its id stays reserved.
            is_unknown = (
                isinstance(refusal, errors.RejectedRequest)
                and refusal.code == _UNAVAILABLE
            )
            if not is_unknown and request.asking == 1:
                self._forget(signed)
            raise
        finally:
            request.asking -= 1
        answer: Tree = json.loads(request.answer)
        return answer

    def _request(
        self, signed: SignedRequest, content: bytes, now: float
    ) -> _ReceivedRequest:
        self._forget_old(now)
        made = self._made.setdefault(signed.user.name, OrderedDict())
        request = made.get(signed.request_id)
        if request is None:
            if len(made) >= _OF_CALLER_MAX:
                oldest = next(iter(made.values()))
                message = (
                    f'the user "{signed.user.name}" has reached the limit of '
                    f"{_OF_CALLER_MAX} requests within {_KEPT_SECONDS} s; try again later"
                )
                raise TooMany(message, oldest.since + _KEPT_SECONDS - now)
            request = made[signed.request_id] = _ReceivedRequest(now, content)
        if request.content != content:
            raise errors.RejectedRequest(
                409,
                "Conflict",
                f"the request id {signed.request_id} was used for a different request; "
                "choose a new one",
            )
        # A repeat with a new signature stays valid for longer, so it must be remembered
        # for longer.
        request.since = max(request.since, now)
        made.move_to_end(signed.request_id)
        return request

    def _forget(self, signed: SignedRequest) -> None:
        made = self._made[signed.user.name]
        del made[signed.request_id]
        if not made:
            del self._made[signed.user.name]

    def _forget_old(self, now: float) -> None:
        for user, made in list(self._made.items()):
            while made and next(iter(made.values())).is_over(now):
                made.popitem(last=False)
            if not made:
                del self._made[user]
