"""What API servers answer about objects is read field by field; an answer without these fields is an error in plain words."""

from collections.abc import Iterator
from contextlib import contextmanager

from activities.cluster_objects.cluster_api import ObjectId
from api_types.errors import ServerError
from api_types.text.printable import escaped

_UNREADABLE = (ArithmeticError, AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)


@contextmanager
def reading(target: ObjectId) -> Iterator[None]:
    """Read what a server answered about an object. Raises ServerError if it lacks what every object of the kind has."""
    try:
        yield
    except _UNREADABLE as error:
        problem = _problem(error)
        raise ServerError(f"{target} cannot be read as an object of that kind ({problem}): see what answers as the API server") from error


@contextmanager
def reading_all(cluster: str) -> Iterator[None]:
    """Read what a cluster answers about many objects. Raises ServerError, which is tried again, if one of them is not as it must be."""
    try:
        yield
    except _UNREADABLE as error:
        problem = f"an object cannot be read as one of its kind ({_problem(error)}): see what answers as the API server"
        raise ServerError(f"cluster {cluster}: {problem}") from error


def _problem(error: Exception) -> str:
    return escaped(f"{type(error).__name__}: {error}"[:100])
