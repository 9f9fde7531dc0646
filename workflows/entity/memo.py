"""The memo of a workflow, from one run to the next."""

from collections.abc import Mapping
from typing import Any

from temporalio import workflow


def memo_to_carry() -> Mapping[str, Any] | None:
    """Give the memo for the next run, which encrypts it anew: the server would carry it as it is, under a key that is to be removed."""
    try:
        return workflow.memo()
    except Exception:  # noqa: BLE001 - whoever started it wrote the memo; the server carries what cannot be read
        return None
