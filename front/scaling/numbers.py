"""The latest metrics of each deployment, in memory.

Gateways and engines push metrics, or the front scrapes them. Metrics are not part of
the object: they change every few seconds, and signals would fill the workflow history.
The sources repeat them, so a restarted front soon has them. Until then it reports that
they are unknown. Expired metrics are never returned: an autoscaler would scale down
because of them, but keeps the replicas if it receives no metrics.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from api_types.clock import timestamp, utc_now
from front.scaling.fields import ObjectFields, shown
from front.serving import errors
from front.store.projection import ObjectKey, Tree

QUEUE_DEPTH, RUNNING_REQUESTS, OBSERVED_AT = (
    "queueDepth",
    "runningRequests",
    "observedAt",
)
NAMES = (QUEUE_DEPTH, RUNNING_REQUESTS)
# The allowed difference between the clocks of sender and front.
_AHEAD = timedelta(seconds=30)
_TIME_BYTES_MAX = 64
_PRUNE_FROM = 1024


@dataclass(frozen=True)
class Numbers:
    """The metrics of one deployment.

    `uid` identifies the object, because a new object of the same name has other
    metrics.
    """

    uid: str
    observed: datetime
    values: dict[str, float] = field(default_factory=dict)


def read_numbers(
    tree: Tree, uid: str, name: str, now: datetime, age_max: timedelta
) -> Numbers:
    """Parse metrics from a request body.

    Raises `RejectedRequest`, also if they are too old.
    """
    fields = ObjectFields(
        tree, "modelplane.ai", "ModelDeployment", name, (*NAMES, OBSERVED_AT)
    )
    found = {each: fields.number(each) for each in NAMES}
    values = {each: number for each, number in found.items() if number is not None}
    if not any(each in tree for each in NAMES):
        fields.problem(
            QUEUE_DEPTH,
            f"one of {', '.join(NAMES)} is required; send the known ones",
        )
    observed: datetime | None = now
    if text := fields.text(OBSERVED_AT, bytes_max=_TIME_BYTES_MAX):
        try:
            observed = datetime.fromisoformat(text)
            # A time without an offset would be in the time zone of this machine.
            observed = observed.astimezone(UTC) if observed.tzinfo else None
        except (ValueError, OverflowError):
            observed = None
        if observed is None:
            fields.problem(
                OBSERVED_AT,
                f"must be an RFC 3339 time such as {timestamp(now)}, got {shown(text)}",
            )
        elif now - observed > age_max:
            fields.problem(
                OBSERVED_AT,
                f"must be at most {age_max.total_seconds():.0f} s ago, got {shown(text)}; "
                f"the current time is {timestamp(now)}",
            )
        elif observed > now + _AHEAD:
            fields.problem(
                OBSERVED_AT,
                f"must not be in the future, got {shown(text)}; the current time is "
                f"{timestamp(now)}",
            )
    fields.check()
    return Numbers(uid, min(observed or now, now), values)


class Told:
    """The latest metrics of each deployment, which expire after `age_max`."""

    def __init__(
        self, age_max: timedelta, now: Callable[[], datetime] = utc_now
    ) -> None:
        self.age_max, self.now = age_max, now
        self._numbers: dict[ObjectKey, Numbers] = {}
        self._waiting: dict[ObjectKey, set[asyncio.Event]] = {}
        self._prune_at = _PRUNE_FROM

    def tell(self, key: ObjectKey, numbers: Numbers) -> None:
        """Store metrics, unless newer ones are known."""
        known = self._numbers.get(key)
        if known and known.uid == numbers.uid and known.observed > numbers.observed:
            return
        self._numbers[key] = numbers
        if len(self._numbers) > self._prune_at:
            self._numbers = {
                each: kept
                for each, kept in self._numbers.items()
                if not self._is_old(kept)
            }
            self._prune_at = max(_PRUNE_FROM, 2 * len(self._numbers))
        for event in self._waiting.get(key, ()):
            event.set()

    def read(self, key: ObjectKey, uid: str) -> Numbers:
        """Return the metrics of a deployment.

        Raises `RejectedRequest` (503) if they are unknown or too old.
        """
        numbers = self._numbers.get(key)
        path = f"PUT /v1/namespaces/{key.namespace}/modeldeployments/{key.name}/metrics"
        if numbers is None or numbers.uid != uid:
            raise errors.unavailable(
                f"ModelDeployment {key.namespace}/{key.name} has no metrics yet; send them "
                f"with {path}"
            )
        if self._is_old(numbers):
            limit = int(self.age_max.total_seconds())
            raise errors.unavailable(
                f"ModelDeployment {key.namespace}/{key.name}: its metrics are from "
                f"{timestamp(numbers.observed)}, older than {limit} s; send new ones with "
                f"{path}"
            )
        return numbers

    async def changed(self, key: ObjectKey, seconds: float) -> None:
        """Wait for new metrics of a deployment, at most for `seconds`."""
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
