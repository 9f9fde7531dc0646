"""The inputs that every fuzz begins with, as data: one folder per target.

A file is an input as it is. A file that ends in `.recipe` is JSON that says how to make one which is too large to keep: a list of parts,
each a text, or `[text, times]`, where `{n}` in the text is the number of the repetition. What a fuzz finds is written there too, and is
tried by every run from then on.
"""

import hashlib
import json
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"
_RECIPE = ".recipe"
_NAME_CHARACTERS = 12


def inputs(target: str, folder: Path = FOLDER) -> dict[str, str]:
    """Give the inputs of a target by name."""
    files = sorted(file for file in (folder / target).iterdir() if file.is_file())
    return {file.name: _made(file) if file.suffix == _RECIPE else file.read_bytes().decode(errors="surrogatepass") for file in files}


def keep(target: str, text: str, folder: Path = FOLDER) -> Path:
    """Write a finding beside the inputs of its target."""
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_NAME_CHARACTERS]
    file = folder / target / f"found-{digest}.txt"
    file.write_bytes(text.encode(errors="surrogatepass"))
    return file


def _made(file: Path) -> str:
    return "".join(_part(part) for part in json.loads(file.read_text()))


def _part(part: str | list[object]) -> str:
    if isinstance(part, str):
        return part
    text, times = str(part[0]), int(str(part[1]))
    return "".join(text.replace("{n}", str(number)) for number in range(times)) if "{n}" in text else text * times
