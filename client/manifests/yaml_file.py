"""Reads files with one YAML mapping that is not a manifest, such as a policy."""

import sys
from collections.abc import Mapping
from pathlib import Path

from api_types.text.reader import Unreadable, read_one
from client.manifests.documents import STANDARD_INPUT, title_of
from fleet_client.errors import Refused

# The maximum number of values, more than a policy of 64 KiB or the facts of a fleet
# have.
_VALUES_MAX = 20_000


def read_yaml(file: Path, what: str) -> Mapping[str, object]:
    """Read a file with one mapping.

    `what` names the purpose of the file in errors. Raise `Refused`, also for an empty
    file: it may have been truncated, so it must not select the default of every field.
    """
    name = title_of(str(file))
    try:
        text = (
            sys.stdin.read()
            if str(file) == STANDARD_INPUT
            else file.expanduser().read_text(encoding="utf-8")
        )
    except OSError as error:
        raise Refused(
            f"cannot read {name}: {error.strerror}",
            next_step=f"name a readable {what} file",
        ) from error
    except UnicodeDecodeError as error:
        raise Refused(
            f"{name} is not UTF-8 text", next_step=f"name a {what} file in YAML or JSON"
        ) from error
    return parse_yaml(text, name, what)


def parse_yaml(text: str, name: str, what: str) -> Mapping[str, object]:
    """Parse a text with one mapping. `name` is its place in errors. Raise `Refused`."""
    try:
        tree = read_one(text, _VALUES_MAX)
    except Unreadable as error:
        raise Refused(
            f"{name} line {error.line}: {error}", next_step=f"correct the {what}"
        ) from error
    if tree is None:
        raise Refused(
            f"{name} is empty",
            next_step=f"write the {what}; `{{}}` means that every field has its default",
        )
    if not isinstance(tree, Mapping):
        raise Refused(
            f"{name} must hold a mapping, not {type(tree).__name__}",
            next_step=f"correct the {what}",
        )
    return tree
