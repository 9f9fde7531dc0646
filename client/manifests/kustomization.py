"""Manifests that kustomize builds."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fleet_client.errors import CommandFailed, Refused

# kubectl contains kustomize.
_PROGRAMS = {"kustomize": ("build",), "kubectl": ("kustomize",)}
_SECONDS = 120.0


@contextmanager
def built(
    folder: Path | None, files: Sequence[str] | None
) -> Iterator[Sequence[str] | None]:
    """Build a kustomization, and return a file with its manifests, or return `files`.

    Raise `Refused` for a folder beside files, and without kustomize, and
    `CommandFailed` with the words of kustomize if it fails.
    """
    if folder is None:
        yield files
        return
    if files:
        raise Refused(
            "-f and -k exclude each other",
            next_step="name the files in the kustomization, or run the command twice",
        )
    text = _build(folder.expanduser())
    with tempfile.TemporaryDirectory(prefix="modelplane-kustomize-") as place:
        # Errors name the folder.
        file = Path(place) / f"{folder.absolute().name}.yaml"
        file.write_text(text, encoding="utf-8")
        yield [str(file)]


def _build(folder: Path) -> str:
    found = [name for name in _PROGRAMS if shutil.which(name)]
    if not found:
        raise Refused(
            "-k needs the program kustomize or kubectl, and neither is on PATH",
            next_step="install kustomize, or build elsewhere: "
            "`kustomize build FOLDER | modelplane apply -f -`",
        )
    command = [found[0], *_PROGRAMS[found[0]], str(folder.absolute())]
    try:
        # The folder is an argument of its own, and no shell reads it.
        ended = subprocess.run(  # noqa: S603
            command, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _failed(command, [f"it has not ended within {_SECONDS:g} s"]) from error
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip()
        raise _failed(command, said.splitlines())
    return ended.stdout.decode(errors="replace")


def _failed(command: Sequence[str], details: Sequence[str]) -> CommandFailed:
    return CommandFailed(
        f"`{' '.join(command)}` failed; nothing was sent",
        details=details,
        next_step="correct the kustomization and run the command again",
    )
