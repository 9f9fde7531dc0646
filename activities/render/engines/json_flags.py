"""Read the JSON value of a flag, such as the configuration of a KV connector.

Users write it, so the number of brackets is limited: deep nesting would exhaust the
stack of code that parses or prints it.
"""

import json
from collections.abc import Mapping
from typing import Any

# More than any engine configuration contains. Nesting of this depth is still within
# Python's recursion limit.
_BRACKETS_MAX = 200


def read_json_object(text: str) -> Mapping[str, Any] | None:
    """Return the object that a text contains.

    Returns None for a text that cannot be read, such as a file name, a variable or a
    shell substitution.
    """
    if text.count("[") + text.count("{") > _BRACKETS_MAX:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, Mapping) else None
