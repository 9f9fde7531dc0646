"""The memo of a workflow, from one run to the next."""

from collections.abc import Mapping
from typing import Any

from temporalio import workflow


def memo_to_carry() -> Mapping[str, Any] | None:
    """Return the memo for the next run.

    The next run encrypts it with the current key. The server would carry it under the
    old key, which may be removed.
    """
    try:
        return workflow.memo()
    except Exception:  # noqa: BLE001 - the server carries an unreadable memo
        return None
