"""Convert malformed responses of an API server into errors that a user can read."""

from collections.abc import Iterator
from contextlib import contextmanager

from activities.cluster_objects.cluster_api import ObjectId
from api_types.errors import ServerError
from api_types.text.printable import escaped

_UNREADABLE = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)


@contextmanager
def reading(target: ObjectId) -> Iterator[None]:
    """Raise ServerError if the block fails on a malformed object.

    `target` names the object in the error.
    """
    try:
        yield
    except _UNREADABLE as error:
        problem = _problem(error)
        raise ServerError(
            f"{target} is malformed ({problem}): check that the cluster's address leads to "
            "its API server"
        ) from error


@contextmanager
def reading_all(cluster: str) -> Iterator[None]:
    """Raise ServerError if the block fails on a malformed object of a list.

    `cluster` is named in the error.
    """
    try:
        yield
    except _UNREADABLE as error:
        raise ServerError(
            f"cluster {cluster} returned a malformed object ({_problem(error)}): check that "
            "the cluster's address leads to its API server"
        ) from error


def _problem(error: Exception) -> str:
    return escaped(f"{type(error).__name__}: {error}"[:100])
