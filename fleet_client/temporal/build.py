"""The build of this program.

Temporal stores the build id with each completed workflow task. An image sets it in
`worker.buildId`. Any other program, such as one from a checkout, uses the digest of its
own sources, so that two programs with different code never share an id.
"""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

from api_types.sections.programs import WorkerSettings

_DISTRIBUTION = "modelplane-temporal"
_FOLDER = Path(__file__).parents[2]
# The packages of the worker, and the kinds of files that they read.
_PACKAGES = ("activities", "api_types", "fleet_client", "scheduler", "workflows")
_SUFFIXES = (".py", ".json", ".lock")
_DIGITS = 12


def build_id(worker: WorkerSettings) -> str:
    """Return the build id of this program."""
    return worker.build_id or build_of_sources()


@cache
def build_of_sources(folder: Path = _FOLDER) -> str:
    """Return the version of the distribution and a digest of the worker's sources."""
    digest = hashlib.sha256()
    for path in _sources(folder):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return f"{version(_DISTRIBUTION)}-{digest.hexdigest()[:_DIGITS]}"


def _sources(folder: Path) -> Iterator[Path]:
    yield folder / "worker.py"
    for package in _PACKAGES:
        yield from sorted(
            path for path in (folder / package).rglob("*") if path.suffix in _SUFFIXES
        )
