"""Files that hold one YAML mapping and are no manifests: a policy, facts about clusters."""

from collections.abc import Mapping
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from client.errors import Refused


def read_yaml(file: Path, what: str) -> Mapping[str, object]:
    """Read a file with one mapping; an empty file is an empty one. `what` names its purpose in errors. Raises `Refused`."""
    try:
        text = file.expanduser().read_text(encoding="utf-8")
        tree = YAML(typ="safe", pure=True).load(text)
    except OSError as error:
        raise Refused(f"cannot read {file}: {error.strerror}", next_step=f"name a readable {what} file") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise Refused(f"{file} is not YAML: {' '.join(str(error).split())}", next_step=f"fix the {what} file") from error
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        raise Refused(f"{file} must hold a mapping, not {type(tree).__name__}", next_step=f"fix the {what} file")
    return tree
