"""Files that hold one YAML mapping and are no manifests: a policy, facts about clusters."""

import sys
from collections.abc import Mapping
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from client.errors import Refused
from client.manifests.documents import STANDARD_INPUT


def read_yaml(file: Path, what: str) -> Mapping[str, object]:
    """Read a file with one mapping. `what` names its purpose in errors. Raises `Refused`, also for a file with nothing in it.

    A file that was cut short must not pass for one that says to leave everything at its default.
    """
    try:
        text = sys.stdin.read() if str(file) == STANDARD_INPUT else file.expanduser().read_text(encoding="utf-8")
        tree = YAML(typ="safe", pure=True).load(text)
    except OSError as error:
        raise Refused(f"cannot read {file}: {error.strerror}", next_step=f"name a readable {what} file") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{file} is not UTF-8 text", next_step=f"name a {what} file in YAML or JSON") from error
    except YAMLError as error:
        raise Refused(f"{file} is not YAML: {' '.join(str(error).split())}", next_step=f"fix the {what} file") from error
    if tree is None:
        raise Refused(f"{file} is empty", next_step=f"write the {what}; `{{}}` means that every field has its default")
    if not isinstance(tree, Mapping):
        raise Refused(f"{file} must hold a mapping, not {type(tree).__name__}", next_step=f"fix the {what} file")
    return tree
