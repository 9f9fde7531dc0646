"""How busy deployments are, as gateways and engines tell it, or as it is scraped from them: the newest numbers of each, in memory.

They are no state of the deployment, and change every few seconds: a signal for each would fill its history. Whoever tells them tells them
again, so a front that was started anew has them soon, and until then says that it does not know. An old number is not given: an autoscaler
would scale down by it, while one that gets no number holds what there is.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from api_types.clock import timestamp, utc_now
from front.scaling.fields import Fields, shown
from front.serving import errors
from front.store.projection import Key, Tree

QUEUE_DEPTH, RUNNING_REQUESTS, OBSERVED_AT = "queueDepth", "runningRequests", "observedAt"
NAMES = (QUEUE_DEPTH, RUNNING_REQUESTS)
# The clocks of who tells and who reads differ by less.
_AHEAD = timedelta(seconds=30)
_TIME_BYTES_MAX = 64
_PRUNE_FROM = 1024


@dataclass(frozen=True)
class Numbers:
    """What was told of one deployment. `uid`: the object that was meant; another one of its name is not so busy."""

    uid: str
    observed: datetime
    values: dict[str, float] = field(default_factory=dict)


def read_numbers(tree: Tree, uid: str, name: str, now: datetime, age_max: timedelta) -> Numbers:
    """Read numbers from the body of a request. Raises `Refused`, also for those that are older than may be read."""
    fields = Fields(tree, "modelplane.ai", "ModelDeployment", name, (*NAMES, OBSERVED_AT))
    values = {each: number for each in NAMES if (number := fields.number(each)) is not None}
    if not any(each in tree for each in NAMES):
        fields.problem(QUEUE_DEPTH, f"one of {', '.join(NAMES)} is required; write those that you know")
    observed: datetime | None = now
    if text := fields.text(OBSERVED_AT, bytes_max=_TIME_BYTES_MAX):
        try:
            observed = datetime.fromisoformat(text)
            # Without an offset it would be of this machine's time zone.
            observed = observed.astimezone(UTC) if observed.tzinfo else None
        except (ValueError, OverflowError):
            observed = None
        if observed is None:
            fields.problem(OBSERVED_AT, f"must be a time as in RFC 3339, such as {timestamp(now)}, got {shown(text)}")
        elif now - observed > age_max:
            fields.problem(
                OBSERVED_AT, f"must be at most {age_max.total_seconds():.0f} s ago, got {shown(text)}; it is {timestamp(now)} here"
            )
        elif observed > now + _AHEAD:
            fields.problem(OBSERVED_AT, f"must not be in the future, got {shown(text)}; it is {timestamp(now)} here")
    fields.check()
    return Numbers(uid, min(observed or now, now), values)


class Told:
    """The newest numbers of each deployment. `age_max`: how old they may be when they are read."""

    def __init__(self, age_max: timedelta, now: Callable[[], datetime] = utc_now) -> None:
        self.age_max, self.now = age_max, now
        self._numbers: dict[Key, Numbers] = {}
        self._waiting: dict[Key, set[asyncio.Event]] = {}
        self._prune_at = _PRUNE_FROM

    def tell(self, key: Key, numbers: Numbers) -> None:
        """Note numbers; those that were observed before the known ones come late and change nothing."""
        known = self._numbers.get(key)
        if known and known.uid == numbers.uid and known.observed > numbers.observed:
            return
        self._numbers[key] = numbers
        if len(self._numbers) > self._prune_at:
            self._numbers = {each: kept for each, kept in self._numbers.items() if not self._is_old(kept)}
            self._prune_at = max(_PRUNE_FROM, 2 * len(self._numbers))
        for event in self._waiting.get(key, ()):
            event.set()

    def read(self, key: Key, uid: str) -> Numbers:
        """Give the numbers of a deployment. Raises `Refused` (503) if they are not known, or old."""
        numbers = self._numbers.get(key)
        path = f"PUT /v1/namespaces/{key.namespace}/modeldeployments/{key.name}/metrics"
        if numbers is None or numbers.uid != uid:
            raise errors.unavailable(f"ModelDeployment {key.namespace}/{key.name}: no numbers were told yet; tell them with {path}")
        if self._is_old(numbers):
            limit = int(self.age_max.total_seconds())
            raise errors.unavailable(
                f"ModelDeployment {key.namespace}/{key.name}: its numbers are of {timestamp(numbers.observed)}, "
                f"and at most {limit} s old ones are given; tell new ones with {path}"
            )
        return numbers

    async def changed(self, key: Key, seconds: float) -> None:
        """Wait until numbers of a deployment are told, or for so long."""
        event = asyncio.Event()
        self._waiting.setdefault(key, set()).add(event)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting[key].discard(event)
            if not self._waiting[key]:
                del self._waiting[key]

    def _is_old(self, numbers: Numbers) -> bool:
        return self.now() - numbers.observed > self.age_max
