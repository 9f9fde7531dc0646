"""What was answered to the signed requests of the last minutes, so that a repeat gets the same answer and changes nothing.

The deployment's workflow remembers the last requests too, for other fronts and after a restart; this does however many there are, and it
refuses an id that was used for another request, which the workflow would take for a repeat.
"""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from front.access.limits import TooMany
from front.access.signing import WINDOW_SECONDS, Signed
from front.serving import errors
from front.store.projection import Tree

_OF_CALLER_MAX = 10_000
# The time of a request may be ahead of ours by the window, and it is taken for as long after that.
_KEPT_SECONDS = 2 * WINDOW_SECONDS
_UNAVAILABLE = 503


@dataclass
class _Request:
    """A request that was made. `since`: when it was made last; `content`: a digest of it; `answer`: in JSON, empty if there is none yet."""

    since: float
    content: bytes
    answer: bytes = b""
    asking: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_over(self, now: float) -> bool:
        """Whether no signature of it is taken any more, and it is not being answered."""
        return not self.asking and self.since + _KEPT_SECONDS < now


class Answers:
    """The requests of each caller, those that were made least recently first. What one caller requests displaces nothing of another."""

    def __init__(self) -> None:
        self._made: dict[str, OrderedDict[str, _Request]] = {}

    async def once(self, signed: Signed, content: bytes, now: float, carry_out: Callable[[], Awaitable[Tree]]) -> Tree:
        """Carry out a request, or give the answer to it if that was done before; while it is being done, a repeat waits for it.

        `content`: all that is requested; `now`: seconds since 1970. Raises what `carry_out` raises; `Refused` (409) if the id was used for
        another request; `TooMany` if the caller has made so many that one would have to be forgotten whose repeat may still come.
        """
        request = self._request(signed, hashlib.sha256(content).digest(), now)
        request.asking += 1
        try:
            async with request.turn:
                if not request.answer:
                    request.answer = json.dumps(await carry_out()).encode()
        except (errors.Refused, TooMany) as refusal:
            # Whether it was carried out is not known of this one alone, so its id stays that of this request.
            is_unknown = isinstance(refusal, errors.Refused) and refusal.code == _UNAVAILABLE
            if not is_unknown and request.asking == 1:
                self._forget(signed)
            raise
        finally:
            request.asking -= 1
        answer: Tree = json.loads(request.answer)
        return answer

    def _request(self, signed: Signed, content: bytes, now: float) -> _Request:
        self._forget_old(now)
        made = self._made.setdefault(signed.user.name, OrderedDict())
        request = made.get(signed.request_id)
        if request is None:
            if len(made) >= _OF_CALLER_MAX:
                oldest = next(iter(made.values()))
                message = f'the user "{signed.user.name}" has made {_OF_CALLER_MAX} requests within {_KEPT_SECONDS} s, which is the most'
                raise TooMany(message, oldest.since + _KEPT_SECONDS - now)
            request = made[signed.request_id] = _Request(now, content)
        if request.content != content:
            raise errors.Refused(409, "Conflict", f"the request id {signed.request_id} was used for another request; choose a new one")
        # A repeat that was signed anew is taken for as long from now on, so it has to be known as one for as long.
        request.since = max(request.since, now)
        made.move_to_end(signed.request_id)
        return request

    def _forget(self, signed: Signed) -> None:
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
