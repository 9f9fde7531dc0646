"""The placement policy from a file, for `policy set` and for plans with another policy than that of the fleet."""

from collections.abc import Mapping
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from client.errors import Refused
from scheduler import InvalidPolicyError, SchedulerOptions, read_policy


def read_policy_file(file: Path) -> SchedulerOptions:
    """Read and check a policy document. Raises `Refused` with every problem."""
    tree = read_yaml(file, "policy")
    try:
        return read_policy(tree)
    except InvalidPolicyError as error:
        raise Refused(f"{file} is not a usable policy", details=error.problems, next_step="fix these fields") from error


def read_yaml(file: Path, what: str) -> Mapping[str, object]:
    """Read a file that holds one mapping; an empty file is an empty one. `what` names its purpose in errors. Raises `Refused`."""
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
