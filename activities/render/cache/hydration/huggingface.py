"""Fill a volume with one revision of a Hugging Face repository, once.

Behind the text of `common` this file is a program: a hydration Job runs it with `python -c` on an image that has none of our packages. It
reads environment variables only. A volume with a finished marker of the same artefact is left as it is. An interrupted download goes on
with the files that have not arrived: the client begins a file under a name that no later process knows, so what a killed one left is
removed first.
"""

import contextlib
import errno
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from activities.render.cache.hydration.common import (
    AUTH_REFUSED,
    MISSING,
    NOT_FOUND,
    SECRETS,
    UNAUTHORIZED,
    Hopeless,
    arrived,
    check_files,
    check_space,
    client,
    run,
    say,
    staged,
    write_marker,
)

# Of the client, in the volume: its home, and the state of its downloads.
WORK = (".modelplane", ".cache/huggingface")
# Beside each file that it has downloaded, in a folder of its own.
NOTE = ".metadata"
TOKEN = "HF_TOKEN"  # noqa: S105 -- its name


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
    return run(fill)


def fill() -> None:
    """Fill the volume, unless that was done."""
    order = Order.from_environment()
    if token := os.environ.get(TOKEN):
        SECRETS.append(token)
    if staged(order.target, order.artefact_key):
        say("already staged")
    else:
        remove_partial(order.target)
        stage(order, client("huggingface_hub", order.requirements, TOKEN))
    remove_work(order.target)


def stage(order: Order, hub: Any) -> None:
    """Download, check what arrived, and write the marker."""
    try:
        info = hub.HfApi().model_info(order.repo, revision=order.revision or None, files_metadata=True)
        sizes = selected({file.rfilename: file.size for file in info.siblings or []}, hub, order)
        remove_others(order.target, sizes)
        # A file of unknown size counts as nothing.
        check_space(order.target, sum(size or 0 for name, size in sizes.items() if not arrived(order.target / name, size)))
        say(f"downloading {order.repo} at {info.sha}: {len(sizes)} files")
        patterns = {"allow_patterns": order.allow, "ignore_patterns": order.ignore}
        hub.snapshot_download(repo_id=order.repo, revision=info.sha, local_dir=str(order.target), **patterns)
    except hub.errors.HfHubHTTPError as error:
        raise verdict_of(error, hub, order) from error
    check_files(order.target, sizes)
    write_marker(order.target, order.artefact_key, "HuggingFace", order.repo, info.sha)


def selected(sizes: dict[str, int | None], hub: Any, order: Order) -> dict[str, int | None]:
    """Give the files that the patterns select, as the client itself will select them."""
    names = set(hub.utils.filter_repo_objects(sizes, allow_patterns=order.allow, ignore_patterns=order.ignore))
    if sizes and not names:
        raise Hopeless(NOT_FOUND, f"no file of {order.repo} is selected by allowPatterns and ignorePatterns: {len(sizes)} files are there")
    return {name: size for name, size in sizes.items() if name in names}


def remove_others(target: Path, sizes: Mapping[str, int | None]) -> None:
    """Remove what an earlier attempt downloaded and this revision has not: a branch may have moved, and engines load all that is there.

    Those of another size would count as space that is lacking. Where only the content differs the client removes them, before it writes.
    What others have put on the volume stays: the client notes which files are its own.
    """
    notes = target / WORK[1] / "download"
    for note in notes.rglob(f"*{NOTE}"):
        name = note.relative_to(notes).as_posix().removesuffix(NOTE)
        if name not in sizes or not arrived(target / name, sizes[name]):
            (target / name).unlink(missing_ok=True)


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


def verdict_of(error: Any, hub: Any, order: Order) -> Exception:
    """Tell refused and missing from what may heal."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    what = f"{order.repo}{f' at {order.revision}' if order.revision else ''}"
    if isinstance(error, hub.errors.GatedRepoError):
        return Hopeless(AUTH_REFUSED, f"{what} is gated: the token has no access ({error})")
    if isinstance(error, hub.errors.RepositoryNotFoundError) and not os.environ.get(TOKEN):
        # Without a token the hub answers 401 for a missing repository as well as for a private one.
        return Hopeless(NOT_FOUND, f"{what} does not exist, or is private and no token was given ({error})")
    if status in UNAUTHORIZED:
        return Hopeless(AUTH_REFUSED, f"the hub refused the token for {what} ({error})")
    if status == MISSING:
        return Hopeless(NOT_FOUND, f"{what} does not exist ({error})")
    return OSError(errno.EIO, f"the hub answered {status} for {what} ({error})")


if __name__ == "__main__":
    sys.exit(main())
