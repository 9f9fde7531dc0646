"""Files that hold one YAML mapping and are no manifests: a policy, facts about clusters."""

import sys
from collections.abc import Mapping
from pathlib import Path

from api_types.text.reader import Unreadable, read_one
from client.errors import Refused
from client.manifests.documents import STANDARD_INPUT, title_of

# More than a policy of 64 KiB can have, and than a fleet has facts.
_VALUES_MAX = 20_000


def read_yaml(file: Path, what: str) -> Mapping[str, object]:
    """Read a file with one mapping. `what` names its purpose in errors. Raises `Refused`, also for a file with nothing in it.

    A file that was cut short must not pass for one that says to leave everything at its default.
    """
    name = title_of(str(file))
    try:
        text = sys.stdin.read() if str(file) == STANDARD_INPUT else file.expanduser().read_text(encoding="utf-8")
        tree = read_one(text, _VALUES_MAX)
    except OSError as error:
        raise Refused(f"cannot read {name}: {error.strerror}", next_step=f"name a readable {what} file") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{name} is not UTF-8 text", next_step=f"name a {what} file in YAML or JSON") from error
    except Unreadable as error:
        raise Refused(f"{name} line {error.line}: {error}", next_step=f"fix the {what} file") from error
    if tree is None:
        raise Refused(f"{name} is empty", next_step=f"write the {what}; `{{}}` means that every field has its default")
    if not isinstance(tree, Mapping):
        raise Refused(f"{name} must hold a mapping, not {type(tree).__name__}", next_step=f"fix the {what} file")
    return tree
