"""Translate the errors of the pure renderers into errors that a workflow reads."""

from collections.abc import Iterator
from contextlib import contextmanager

from activities.render.inputs.facts import InvalidFacts
from activities.render.inputs.findings import InvalidSpec, NotRenderable
from api_types.errors import InvalidInput, Unsupported


@contextmanager
def as_activity_errors() -> Iterator[None]:
    """Raise InvalidInput or Unsupported for errors of the renderers.

    The first detail of the error is the reason for the condition.
    """
    try:
        yield
    except InvalidSpec as error:
        raise InvalidInput(str(error), error.reason) from error
    except NotRenderable as error:
        raise Unsupported(str(error), error.reason) from error
    except InvalidFacts as error:
        raise InvalidInput(str(error), InvalidSpec.reason) from error
