"""The initial inputs of every fuzz, as data: one folder per target.

A file is an unchanged input. A file with suffix `.recipe` is JSON that describes an
input that is too large to store: a list of parts, each a text or `[text, times]`, where
`{n}` in the text is the number of the repetition. Findings are written there too, and
every later run tries them.
"""

import hashlib
import json
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"
_RECIPE = ".recipe"
_NAME_CHARACTERS = 12


def inputs(target: str, folder: Path = FOLDER) -> dict[str, str]:
    """Return the inputs of a target by name."""
    files = sorted(file for file in (folder / target).iterdir() if file.is_file())
    return {
        file.name: _made(file)
        if file.suffix == _RECIPE
        else file.read_bytes().decode(errors="surrogatepass")
        for file in files
    }


def keep(target: str, text: str, folder: Path = FOLDER) -> Path:
    """Write a finding next to the inputs of its target."""
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[
        :_NAME_CHARACTERS
    ]
    file = folder / target / f"found-{digest}.txt"
    file.write_bytes(text.encode(errors="surrogatepass"))
    return file


def _made(file: Path) -> str:
    return "".join(_part(part) for part in json.loads(file.read_text()))


def _part(part: str | list[object]) -> str:
    if isinstance(part, str):
        return part
    text, times = str(part[0]), int(str(part[1]))
    return (
        "".join(text.replace("{n}", str(number)) for number in range(times))
        if "{n}" in text
        else text * times
    )
