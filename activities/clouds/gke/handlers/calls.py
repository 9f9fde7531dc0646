"""The creating call of a desired object, and its owner mark."""

from typing import Any

from activities.clouds.desired.graph import arguments
from activities.clouds.lifecycle.handler import CloudObservation, ObjectWork, State

_SHOWN_MAX = 120


def parameters(wanted: ObjectWork) -> dict[str, Any]:
    """Return the arguments of the creating call. Raises NotYet for an unknown fact."""
    return arguments(wanted.object.calls[0], wanted.fact, wanted.token)


def foreign(description: str, unmarked: str = "") -> CloudObservation:
    """Return an object of another owner, with its mark as the reason.

    `unmarked` is passed for an object that this cluster created.
    """
    reason = f'its description is "{description[:_SHOWN_MAX]}"'
    return CloudObservation(State.FOREIGN, reason=reason, unmarked=unmarked)
