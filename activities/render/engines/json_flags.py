"""Read the value of a flag that is JSON, such as the configuration of a KV connector.

The user writes it, so it is read with a bound: brackets within brackets would otherwise take the stack of whoever reads or shows them.
"""

import json
from collections.abc import Mapping
from typing import Any

# No configuration of an engine opens as many; so deep a nesting is still read, compared and shown within Python's own limit.
_BRACKETS_MAX = 200


def read_json_object(text: str) -> Mapping[str, Any] | None:
    """Give the object that a text is; None for one that cannot be read here: a file, a variable, or what a shell puts there."""
    if text.count("[") + text.count("{") > _BRACKETS_MAX:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, Mapping) else None
