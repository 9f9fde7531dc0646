"""The worker as users run it, but it kills itself once, right before it sends the
scheduler's first answers.

By then the scheduler has decided and has charged its ledger. `WORKER_STOPS` names a
file that the worker writes before it dies, so that the next worker continues.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from temporalio.client import Client

import worker
from activities.messaging import entity_client
from activities.messaging.delivering import deliver
from activities.messaging.sending import CALLS_AT_ONCE
from api_types.messages.delivery import SignalRequest
from api_types.messages.signals import ModelDeploymentSignals

MARK = "WORKER_STOPS"


async def _send_and_stop(
    client: Client, requests: Sequence[SignalRequest], at_once: int = CALLS_AT_ONCE
) -> list[str]:
    mark = Path(os.environ[MARK])
    is_answer = any(
        request.signal == ModelDeploymentSignals.PLACED.name for request in requests
    )
    if is_answer and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return await deliver(client, requests, at_once)


if __name__ == "__main__":
    entity_client.deliver = _send_and_stop  # type: ignore[attr-defined]
    worker.main()
