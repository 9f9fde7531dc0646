"""The worker as users run it, but it kills itself once: right before or right after it sends the first answers of the scheduler.

The scheduler has decided and has charged its ledger by then. `WORKER_STOPS` names the point and a file that is written when it was
reached, so that the next such worker goes on.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from temporalio.client import Client

import worker
from activities.messaging import entity_client
from activities.messaging.sending import send_signals
from api_types.messages.delivery import SignalRequest
from api_types.messages.signals import ModelDeploymentSignals

POINT = "WORKER_STOPS"
BEFORE, AFTER = "before", "after"


async def _send_and_stop(client: Client, requests: Sequence[SignalRequest]) -> list[str]:
    point, _, mark = os.environ[POINT].partition(":")
    is_answer = any(request.signal == ModelDeploymentSignals.PLACED.name for request in requests)
    stops = is_answer and not Path(mark).exists()
    if stops and point == BEFORE:
        _stop(Path(mark))
    missing = await send_signals(client, requests)
    if stops:
        _stop(Path(mark))
    return missing


def _stop(mark: Path) -> None:
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    entity_client.send_signals = _send_and_stop  # type: ignore[attr-defined]
    worker.main()
