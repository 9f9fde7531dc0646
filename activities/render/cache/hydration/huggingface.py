"""Fill a volume with one revision of a Hugging Face repository, once.

This file is a program: a hydration Job runs its text with `python -c` on an image that has none of our packages, so it imports the
standard library and the hub's client only. It reads environment variables only. A volume with a finished marker of the same artefact is
left as it is. An interrupted download goes on with the files that have not arrived: the client begins a file under a name that no later
process knows, so what a killed one left is removed first.
"""

import contextlib
import errno
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AUTH_REFUSED = 41
NOT_FOUND = 42
NO_SPACE = 43
# As shells tell it. Not final: whoever ended the pod wants it elsewhere, or later.
TERMINATED = 128 + signal.SIGTERM
MARKER = ".modelplane-hydrated"
# Of the client, in the volume: its home, and the state of its downloads.
WORK = (".modelplane", ".cache/huggingface")
MESSAGE_BYTES_MAX = 1000
TOKEN = "HF_TOKEN"  # noqa: S105 -- its name
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNAUTHORIZED = (401, 403)
_MISSING = 404


class Hopeless(Exception):
    """Trying again cannot help; `code` is the exit code that says why."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True)
class Order:
    """What to fetch and where to; `revision` may be empty for the default branch. `allow` and `ignore` are patterns of files, or None."""

    repo: str
    revision: str
    artefact_key: str
    target: Path
    requirements: str
    allow: list[str] | None
    ignore: list[str] | None

    @classmethod
    def from_environment(cls) -> "Order":
        """Read the order; a missing variable is a bug of whoever wrote the Job."""
        environ = os.environ
        return cls(
            repo=environ["MODELPLANE_REPO"],
            revision=environ.get("MODELPLANE_REVISION", ""),
            artefact_key=environ["MODELPLANE_ARTEFACT_KEY"],
            target=Path(environ["MODELPLANE_TARGET"]),
            requirements=environ["MODELPLANE_CLIENT_REQUIREMENTS"],
            allow=json.loads(environ.get("MODELPLANE_ALLOW_PATTERNS", "null")),
            ignore=json.loads(environ.get("MODELPLANE_IGNORE_PATTERNS", "null")),
        )


def main() -> int:
    """Run the order of the environment; gives the exit code."""
    # The first process of a container gets no signal that it has no handler for, and would be killed when its grace period is over.
    signal.signal(signal.SIGTERM, terminate)
    order = Order.from_environment()
    try:
        if staged(order):
            say("already staged")
        else:
            remove_partial(order.target)
            stage(order, client(order.requirements))
        remove_work(order.target)
    except Hopeless as verdict:
        say(str(verdict))
        return verdict.code
    except OSError as error:
        say(f"{type(error).__name__}: {error}")
        return NO_SPACE if error.errno in _FULL else 1
    return 0


def terminate(*_: object) -> None:
    """End at once: threads of the client would be waited for, and one that downloads does not look at anything else."""
    say("stopped by SIGTERM: the next attempt goes on with the files that have not arrived")
    os._exit(TERMINATED)


def staged(order: Order) -> bool:
    """Tell whether a marker of this very artefact stands in the volume."""
    try:
        marker = json.loads((order.target / MARKER).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return isinstance(marker, dict) and marker.get("artefactKey") == order.artefact_key


def client(requirements: str) -> Any:
    """Give the hub's client: that of the image, or the pinned one, installed beside it."""
    try:
        return importlib.import_module("huggingface_hub")
    except ModuleNotFoundError:
        folder = tempfile.mkdtemp(prefix="hub-client-")
    say("installing huggingface_hub")
    wanted = Path(folder) / "requirements.txt"
    wanted.write_text(requirements, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    # Only what has a known hash, and no package that would run code to be built. None of it has a use for the token.
    checked = ["--require-hashes", "--only-binary", ":all:", "--target", folder, "--requirement", str(wanted)]
    environ = {name: value for name, value in os.environ.items() if name != TOKEN}
    if subprocess.run([*pip, *checked], env=environ, check=False).returncode:  # noqa: S603 -- the requirements are ours
        raise OSError(errno.EIO, "huggingface_hub could not be installed; use an image that has it, or a package index that pip reaches")
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    return importlib.import_module("huggingface_hub")


def stage(order: Order, hub: Any) -> None:
    """Download, check what arrived, and write the marker."""
    try:
        info = hub.HfApi().model_info(order.repo, revision=order.revision or None, files_metadata=True)
        sizes = selected({file.rfilename: file.size for file in info.siblings or []}, hub, order)
        check_space(order.target, sizes)
        say(f"downloading {order.repo} at {info.sha}: {len(sizes)} files")
        patterns = {"allow_patterns": order.allow, "ignore_patterns": order.ignore}
        hub.snapshot_download(repo_id=order.repo, revision=info.sha, local_dir=str(order.target), **patterns)
    except hub.errors.HfHubHTTPError as error:
        raise verdict_of(error, hub, order) from error
    check_files(order.target, sizes)
    write_marker(order, info.sha)


def selected(sizes: dict[str, int | None], hub: Any, order: Order) -> dict[str, int | None]:
    """Give the files that the patterns select, as the client itself will select them."""
    names = set(hub.utils.filter_repo_objects(sizes, allow_patterns=order.allow, ignore_patterns=order.ignore))
    if sizes and not names:
        raise Hopeless(NOT_FOUND, f"no file of {order.repo} is selected by allowPatterns and ignorePatterns: {len(sizes)} files are there")
    return {name: size for name, size in sizes.items() if name in names}


def remove_partial(target: Path) -> None:
    """Remove the files that a killed process was writing, which would take the space of those that are missing."""
    for path in (target / WORK[1]).rglob("*.incomplete"):
        path.unlink(missing_ok=True)
    shutil.rmtree(target / WORK[0], ignore_errors=True)


def remove_work(target: Path) -> None:
    """Remove what the client needs for downloads alone. What cannot be removed costs space, and is no reason to fail."""
    for name in WORK:
        shutil.rmtree(target / name, ignore_errors=True)
    with contextlib.suppress(OSError):
        (target / WORK[1]).parent.rmdir()


def check_space(target: Path, sizes: dict[str, int | None]) -> None:
    """Leave before the download if what is missing cannot fit. Sizes are in bytes; files of unknown size count as nothing."""
    missing = sum(size or 0 for name, size in sizes.items() if not arrived(target / name, size))
    free = shutil.disk_usage(target).free
    if missing > free:
        raise Hopeless(NO_SPACE, f"the volume has {free} bytes free, but {missing} bytes are missing: raise sizeGiB")


def check_files(target: Path, sizes: dict[str, int | None]) -> None:
    """Raise OSError if a file did not arrive whole."""
    lacking = [name for name, size in sizes.items() if not arrived(target / name, size)]
    if lacking:
        raise OSError(errno.EIO, f"{len(lacking)} of {len(sizes)} files are missing or not whole: {', '.join(lacking[:5])}")


def arrived(path: Path, size: int | None) -> bool:
    """Tell whether a file is there with its full size in bytes."""
    return path.is_file() and (size is None or path.stat().st_size == size)


def write_marker(order: Order, commit: str) -> None:
    """Put the marker down whole or not at all."""
    marker = {
        "source": "HuggingFace",
        "repo": order.repo,
        "commit": commit,
        "artefactKey": order.artefact_key,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    part = order.target / f"{MARKER}.part"
    with part.open("w", encoding="utf-8") as file:
        json.dump(marker, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(order.target / MARKER)
    say(f"staged {order.repo} at {commit}")


def verdict_of(error: Any, hub: Any, order: Order) -> Exception:
    """Tell refused and missing from what may heal."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    what = f"{order.repo}{f' at {order.revision}' if order.revision else ''}"
    if isinstance(error, hub.errors.GatedRepoError):
        return Hopeless(AUTH_REFUSED, f"{what} is gated: the token has no access ({error})")
    if isinstance(error, hub.errors.RepositoryNotFoundError) and not os.environ.get(TOKEN):
        # Without a token the hub answers 401 for a missing repository as well as for a private one.
        return Hopeless(NOT_FOUND, f"{what} does not exist, or is private and no token was given ({error})")
    if status in _UNAUTHORIZED:
        return Hopeless(AUTH_REFUSED, f"the hub refused the token for {what} ({error})")
    if status == _MISSING:
        return Hopeless(NOT_FOUND, f"{what} does not exist ({error})")
    return OSError(errno.EIO, f"the hub answered {status} for {what} ({error})")


def say(text: str) -> None:
    """Write one line to the log, short enough to become the pod's termination message, and without credentials."""
    for name in (TOKEN, "HTTP_PROXY", "HTTPS_PROXY"):
        if (value := os.environ.get(name, "")) and (name == TOKEN or "@" in value):
            text = text.replace(value, "***")
    line = " ".join(text.split())
    sys.stderr.write(line.encode()[:MESSAGE_BYTES_MAX].decode(errors="ignore") + "\n")


if __name__ == "__main__":
    sys.exit(main())
