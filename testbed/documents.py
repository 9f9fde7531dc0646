"""Read and write small YAML and JSON files.

Every file of the testbed is replaced by a rename, so a process that is killed while it
writes never leaves an incomplete file.
"""

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

PRIVATE = 0o600


def write_text(path: Path, text: str, mode: int = PRIVATE) -> None:
    """Replace `path` with `text`, and create its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.touch(mode=mode)
    draft.chmod(mode)
    draft.write_text(text)
    draft.replace(path)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """Return the content of `path`, or None if there is no such file."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def load_all(text: str) -> list[Any]:
    """Return all YAML documents in `text` that are not empty."""
    return [
        document for document in YAML(typ="safe").load_all(text) if document is not None
    ]


def dump_all(documents: Iterable[Any]) -> str:
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    yaml.dump_all(list(documents), stream)
    return stream.getvalue()
