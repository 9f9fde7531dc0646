"""Send signals to several receivers.

No receiver waits for another receiver.

A receiver may refuse signals for hours, for example because its run has received the
maximum number of signals. The activity hands refused signals to the Redelivery of the
receiver, a workflow that sends them again. The sender continues, because each receiver
tolerates late and lost messages.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from activities.heartbeat import Progress
from activities.messaging.lookups import first_run, list_entities
from activities.messaging.messages import Survey
from activities.messaging.sending import (
    CALL_SECONDS,
    CALLS_AT_ONCE,
    REFUSALS,
    ensure_redelivery,
    send_signal,
)
from api_types import names
from api_types.errors import error_message
from api_types.messages.delivery import (
    Broadcast,
    HoldSignals,
    Redelivered,
    SignalRequest,
)

# Before this attempt, the activity fails if all receivers fail, because the server may
# be down.
_PATIENT_ATTEMPTS = 3
# Before this attempt, a hand-over that failed fails the activity. Temporal retries it for one to
# two minutes, and longer if the server does not answer.
_HAND_OVER_ATTEMPTS = 15
# Seconds for the signals to a receiver, and again for the hand-over. A local activity has ten.
_LOCAL_SECONDS = 4
# Seconds for a look at the sender after a hand-over without an answer. A local activity
# must still end in time.
_LOOK_SECONDS = 1
# How long a Redelivery sends signals before it reports its progress.
_ROUND_SECONDS = 30
# The number of receivers that a broadcast signals between two reports of progress. The
# next attempt repeats the signals of an incomplete page.
PAGE = 100
# Nothing waits for the end of a broadcast, but its calls delay the decisions that the
# server processes.
BROADCAST_CALLS_AT_ONCE = 4


@dataclass
class _Outbox:
    """The signals to one receiver, in order.

    After sending, `unsent` are the signals that were not sent, and `error` is the reason.
    """

    receiver: str
    unsent: list[SignalRequest] = field(default_factory=list)
    missing: bool = False
    error: Exception | None = None

    @property
    def is_refused(self) -> bool:
        return isinstance(self.error, RPCError) and self.error.status in REFUSALS

    @property
    def problem(self) -> str:
        """The text of the error. A TimeoutError has none, so its name is given."""
        if self.error is None:
            return ""
        return error_message(self.error) or type(self.error).__name__

    async def send(self, client: Client, seconds: float | None = None) -> None:
        """Send until the first refusal, or for at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while self.unsent:
                    self.missing |= not await send_signal(client, self.unsent[0])
                    del self.unsent[0]
        except (RPCError, TimeoutError) as error:
            self.error = error


async def deliver(
    client: Client,
    requests: Sequence[SignalRequest],
    at_once: int = CALLS_AT_ONCE,
) -> list[str]:
    """Send signals from an activity, in order for each receiver.

    `at_once` receivers get their signals concurrently. Returns the receivers that do
    not run. Raises the error of a receiver if all of them fail and the server may be
    the cause. Temporal then makes another attempt.
    """
    outboxes: dict[str, _Outbox] = {}
    for request in requests:
        outboxes.setdefault(
            request.workflow_id, _Outbox(request.workflow_id)
        ).unsent.append(request)
    seconds = _LOCAL_SECONDS if activity.info().is_local else None
    slots = asyncio.Semaphore(at_once)

    async def send(outbox: _Outbox) -> None:
        async with slots:
            await outbox.send(client, seconds)

    async def hand_over(outbox: _Outbox) -> None:
        async with slots:
            await _hand_over(client, outbox, seconds or CALL_SECONDS)

    await asyncio.gather(*map(send, outboxes.values()))
    failed = [outbox for outbox in outboxes.values() if outbox.error is not None]
    if len(failed) == len(outboxes) and activity.info().attempt < _PATIENT_ATTEMPTS:
        for outbox in failed:
            if outbox.error is not None and not outbox.is_refused:
                raise outbox.error
    await asyncio.gather(*map(hand_over, failed))
    return [outbox.receiver for outbox in outboxes.values() if outbox.missing]


async def broadcast(
    client: Client, wanted: Broadcast, report: Callable[[Progress], None]
) -> int:
    """Send one signal to all matching running entities, page by page.

    Returns the number of receivers. `report` gets the progress after each page, and the
    next attempt continues there.
    """
    progress: dict[str, Any] = next(iter(activity.info().heartbeat_details), {})
    if progress:
        # Otherwise the first heartbeat of this attempt would delete the progress.
        report(progress)
    after, reached = str(progress.get("after", "")), int(progress.get("reached", 0))
    narrowed = Survey(
        kinds=wanted.kinds,
        namespace=wanted.namespace,
        cluster=wanted.cluster,
        page_size=PAGE,
    )
    while True:
        page = await list_entities(client, narrowed.model_copy(update={"after": after}))
        signal = partial(SignalRequest, signal=wanted.signal, payload=wanted.payload)
        requests = [signal(workflow_id=receiver) for receiver in page.found]
        await deliver(client, requests, BROADCAST_CALLS_AT_ONCE)
        reached += len(page.found)
        if not page.after:
            return reached
        after = page.after
        report({"after": after, "reached": reached})


async def redeliver(client: Client, requests: Sequence[SignalRequest]) -> Redelivered:
    """Send signals to one receiver again, until the first refusal or for some seconds."""
    outbox = _Outbox("", list(requests))
    await outbox.send(client, _ROUND_SECONDS)
    count = len(requests) - len(outbox.unsent)
    is_slow = isinstance(outbox.error, TimeoutError) and count > 0
    return Redelivered(
        count=count, missing=outbox.missing, problem="" if is_slow else outbox.problem
    )


async def _hand_over(client: Client, outbox: _Outbox, seconds: float) -> None:
    sender = activity.info().workflow_id or ""
    held = HoldSignals(sender=sender, signals=outbox.unsent, problem=outbox.problem)
    activity.logger.warning("%s takes no signals: %s", outbox.receiver, held.problem)
    if names.receiver_of_redelivery(outbox.receiver):
        # The signals are lost. A Redelivery for a Redelivery would not help.
        return
    try:
        async with asyncio.timeout(seconds):
            await ensure_redelivery(client, outbox.receiver, held)
    except (RPCError, TimeoutError) as error:
        if not await _is_final(client, outbox.receiver, error):
            raise
        activity.logger.warning(
            "signals for %s are lost: %s", outbox.receiver, error_message(error)
        )


async def _is_final(client: Client, receiver: str, error: Exception) -> bool:
    """Return whether the server will refuse the hand-over again.

    A running Redelivery has the same limit of signals as its receiver. The start of a
    Redelivery may be refused for a while, for example before the server knows the
    search attributes. Any other error is final after many attempts if the server
    answers about the sender: then the receiver and its Redelivery are in trouble, and
    the server is not.
    """
    is_late = activity.info().attempt >= _HAND_OVER_ATTEMPTS
    if isinstance(error, RPCError) and error.status in REFUSALS:
        return is_late or bool(await first_run(client, names.redelivery_id(receiver)))
    return is_late and await _answers_about(client, activity.info().workflow_id or "")


async def _answers_about(client: Client, workflow_id: str) -> bool:
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            await first_run(client, workflow_id)
    except (RPCError, TimeoutError):
        return False
    return True
