"""Reads and admits the manifests that `-f` names: files, folders and standard input.

All errors of all documents are reported together.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from api_types.validation.manifests import (
    Admitted,
    Document,
    InvalidManifest,
    admit_all,
    parse,
)
from fleet_client.checks import CHECKS
from fleet_client.errors import Refused
from fleet_client.refs.targets import DEFAULT_NAMESPACE

_SUFFIXES = {".yaml", ".yml", ".json"}
STANDARD_INPUT = "-"
_ENCODING = "manifests are YAML or JSON in UTF-8"


def read_documents(names: Sequence[str] | None) -> list[Document]:
    """Parse every document of the named files and folders.

    Raise `Refused` for a file that is missing, unreadable, empty or not YAML.
    """
    if not names:
        raise Refused(
            "nothing to read",
            next_step="name manifests with -f FILE, -f FOLDER or -f -",
        )
    documents: list[Document] = []
    lines: list[str] = []
    count = 0
    texts: list[tuple[str, str]] = []
    for name in names:
        texts += _texts(name)
    for source, text in texts:
        try:
            documents += parse(text, source)
        except InvalidManifest as refusal:
            count += len(refusal.problems)
            lines += refusal.lines()
    if lines:
        raise _refused(count, lines)
    if not documents:
        raise Refused(
            f"no manifest in {', '.join(map(title_of, names))}",
            next_step="a manifest has apiVersion, kind, metadata and spec",
        )
    return documents


def admit_documents(
    documents: Sequence[Document], namespace: str | None
) -> list[Admitted]:
    """Check documents in full. Raise `Refused` with the errors of all documents."""
    try:
        return admit_all(documents, CHECKS, namespace or DEFAULT_NAMESPACE)
    except InvalidManifest as refusal:
        raise _refused(
            len(refusal.problems), refusal.lines(), _fleet_files(documents)
        ) from refusal


def print_warnings(admitted: Sequence[Admitted]) -> None:
    for one in admitted:
        for warning in one.warnings:
            print(f"warning: {warning}", file=sys.stderr)


def title_of(name: str) -> str:
    """Return the name of a file for messages."""
    return "standard input" if name == STANDARD_INPUT else name


def _standard_input() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise Refused(
            "standard input is not UTF-8 text", next_step=_ENCODING
        ) from error


def _texts(name: str) -> list[tuple[str, str]]:
    if name == STANDARD_INPUT:
        return [(title_of(name), _standard_input())]
    if name.startswith(("http://", "https://")):
        raise Refused(
            f"{name} is an address, and only files and folders are read",
            next_step=f"download it: `curl -fsSL {name} | modelplane … -f -`",
        )
    path = Path(name).expanduser()
    if path.is_dir():
        files = sorted(
            file
            for file in path.rglob("*")
            if file.suffix in _SUFFIXES and file.is_file()
        )
        if not files:
            raise Refused(
                f"{name}: the folder has no .yaml, .yml or .json file",
                next_step="name a folder with manifests",
            )
        return [(str(file), _text(file)) for file in files]
    return [(name, _text(path))]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{file} is not UTF-8 text", next_step=_ENCODING) from error
    except OSError as error:
        raise Refused(
            f"cannot read {file}: {error.strerror}", next_step="check the path"
        ) from error
    except ValueError as error:
        raise Refused(
            f"cannot read {file}: no file can have this name",
            next_step="check the path",
        ) from error


def _fleet_files(documents: Sequence[Document]) -> list[str]:
    """Return the files that describe a simulated fleet instead of manifests.

    They have `classes` and `clusters`, and neither `apiVersion` nor `kind`.
    """
    found = [
        one.source
        for one in documents
        if {"classes", "clusters"} <= one.keys()
        and not {"apiVersion", "kind"} & one.keys()
    ]
    return list(dict.fromkeys(found))


def _refused(
    number: int, lines: Sequence[str], fleet_files: Sequence[str] = ()
) -> Refused:
    count = f"{number} error{'s' if number > 1 else ''}"
    next_step = "fix these fields and run the command again"
    if fleet_files:
        next_step += (
            f"; fleet files are not manifests: `modelplane up --fleet {fleet_files[0]}`"
        )
    return Refused(
        f"{count} in the input; nothing was sent", details=lines, next_step=next_step
    )
