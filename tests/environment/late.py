"""Load slow modules when a test first uses them.

Otherwise every process that collects the test file would pay for the import.
"""

import importlib
from typing import Any


class Late:
    """Stand in for a module, and load it when a test first uses a class of it.

    Type checkers need the import itself: assign this in the `else` branch of `if TYPE_CHECKING:`.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # pytest reads attributes of every object in a test module to find marks and
        # fixtures.
        if not attribute[0].isupper():
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)
