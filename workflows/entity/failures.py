"""The last failure of an activity, as an entity keeps it in its state to show it in conditions."""

from typing import NamedTuple

from api_types.errors import error_message, error_type


class Failure(NamedTuple):
    """The type and message of an error; an empty type means that nothing failed. In JSON a list of the two."""

    type: str = ""
    message: str = ""


def failure_of(error: BaseException) -> Failure:
    """Read why an activity failed. An error without a type is a timeout, and what times out is a call to a cluster."""
    return Failure(error_type(error) or "ClusterUnreachable", error_message(error))
