"""The call that a desired object is made with, and its owner mark."""

from typing import Any

from activities.clouds.graph import arguments
from activities.clouds.lifecycle.handler import Found, State, Wanted

_SHOWN_MAX = 120


def parameters(wanted: Wanted) -> dict[str, Any]:
    """Give the arguments of the call that creates the object. Raises NotYet while another object is not known."""
    return arguments(wanted.object.calls[0], wanted.fact, wanted.token)


def foreign(description: str) -> Found:
    """Give an object of another owner, with the mark that it has."""
    return Found(State.FOREIGN, reason=f'its description is "{description[:_SHOWN_MAX]}"')
