"""What rendering refuses, as the errors that a workflow reads.

Rendering is pure and raises errors of its own; activities that render translate them here.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from activities.render.inputs.facts import InvalidFacts
from activities.render.inputs.findings import InvalidSpec, NotRenderable
from api_types.errors import InvalidInput, Unsupported


@contextmanager
def as_activity_errors() -> Iterator[None]:
    """Raise InvalidInput or Unsupported for what rendering refuses; the reason of the condition is the first detail of the error."""
    try:
        yield
    except InvalidSpec as error:
        raise InvalidInput(str(error), error.reason) from error
    except NotRenderable as error:
        raise Unsupported(str(error), error.reason) from error
    except InvalidFacts as error:
        raise InvalidInput(str(error), InvalidSpec.reason) from error
