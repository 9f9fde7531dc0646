"""Collect the objects in the `crds/` folders of a packed chart.

Helm applies them only at the first installation. Its command that lists them reads only
the top chart, but large charts have them in a subchart. A chart is untrusted: its
archives are read in memory, within limits, and never unpacked into a folder.
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any

from api_types.text.reader import Unreadable, read_trees

_LEVELS_MAX = 8
# The largest known chart has 5 MiB of definitions.
_BYTES_MAX = 64 << 20
_FILES_MAX = 20_000
_ENDINGS = (".yaml", ".yml", ".json")


class Unpackable(ValueError):
    """A chart that cannot be read. The message states the reason."""


class _ChartBudget:
    """The remaining size limit of a chart with all its subcharts."""

    def __init__(self) -> None:
        self.bytes = _BYTES_MAX
        self.files = _FILES_MAX

    def unpacked(self, archive: bytes) -> bytes:
        """Decompress an archive. `tarfile` itself would read headers of any length."""
        with gzip.GzipFile(fileobj=io.BytesIO(archive)) as packed:
            content = packed.read(self.bytes + 1)
        self.bytes -= len(content)
        if self.bytes < 0:
            raise Unpackable(f"it has more than {_BYTES_MAX >> 20} MiB")
        return content

    def take_file(self, size: int, archive_size: int) -> None:
        self.files -= 1
        if self.files < 0:
            raise Unpackable(f"it has more than {_FILES_MAX} files")
        # A sparse file, which is read as zeros.
        if size > archive_size:
            raise Unpackable("one of its files is larger than its archive")


def read_crds(archive: bytes) -> list[dict[str, Any]]:
    """Return the objects of all levels, top chart first, sorted by path.

    This takes seconds for a large chart, so do not call it in an event loop. Raises
    Unpackable.
    """
    found = []
    for path, content in _files(archive, _ChartBudget(), 1):
        found += _objects(path, content)
    return found


def _files(
    archive: bytes, budget: _ChartBudget, level: int
) -> Iterator[tuple[str, bytes]]:
    """Yield the files in `crds/` of a chart, then those of its subcharts."""
    if level > _LEVELS_MAX:
        raise Unpackable(f"it has subcharts more than {_LEVELS_MAX} levels deep")
    crds, packed = {}, {}
    try:
        unpacked = budget.unpacked(archive)
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as tar:
            for entry in tar:
                budget.take_file(entry.size, len(unpacked))
                folders = _inside(entry.name)
                content = tar.extractfile(entry) if entry.isfile() else None
                if content is None or not folders:
                    continue
                if folders[0] == "crds" and entry.name.lower().endswith(_ENDINGS):
                    crds[entry.name] = content.read()
                elif folders[0] == "charts" and entry.name.endswith(".tgz"):
                    packed[entry.name] = content.read()
    except Unpackable:
        raise
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError) as error:
        raise Unpackable(
            f"its archive cannot be read: {type(error).__name__}"
        ) from None
    yield from sorted(
        crds.items(), key=lambda each: (each[0].count("/charts/"), each[0])
    )
    for name in sorted(packed):
        yield from _files(packed[name], budget, level + 1)


def _inside(path: str) -> list[str]:
    """Return a file's path within its own chart, which may be an unpacked subchart."""
    parts = path.removeprefix("./").split("/")
    # Helm does not install such a chart either.
    if ".." in parts or not parts[0]:
        raise Unpackable("the path of one of its files leads out of it")
    del parts[0]
    while len(parts) > 2 and parts[0] == "charts":  # noqa: PLR2004 - charts/<name>/<file>
        parts = parts[2:]
    return parts if len(parts) > 1 else []


def _objects(path: str, content: bytes) -> list[dict[str, Any]]:
    try:
        trees = [tree for tree, _ in read_trees(content.decode())]
    except (Unreadable, UnicodeDecodeError) as error:
        raise Unpackable(f"{path} cannot be read: {error}") from None
    return [tree for tree in trees if isinstance(tree, dict) and tree.get("kind")]
