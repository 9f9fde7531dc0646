"""What API servers answer about objects is read field by field; an answer without these fields is an error in plain words."""

from collections.abc import Iterator
from contextlib import contextmanager

from activities.cluster_objects.cluster_api import ObjectId
from api_types.errors import ServerError


@contextmanager
def reading(target: ObjectId) -> Iterator[None]:
    """Read what a server answered about an object. Raises ServerError if it lacks what every object of the kind has."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"[:100]
        raise ServerError(f"{target} cannot be read as an object of that kind ({problem}): see what answers as the API server") from error
