"""Fill a volume with one revision of a Hugging Face repository, once.

Together with the text of `common` this file is a program. A hydration Job runs it with
`python -c` on an image without our packages. It reads only environment variables. A
volume with a finished marker of the same artefact stays unchanged. An interrupted
download continues with the missing files. The client starts each file under a random
name, so the program first removes the unfinished files of a killed process.
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

# Folders of the client in the volume: its home, and the state of its downloads.
WORK = (".modelplane", ".cache/huggingface")
# The client keeps metadata beside each downloaded file, in this folder.
NOTE = ".metadata"
TOKEN = "HF_TOKEN"  # noqa: S105 -- its name


@dataclass(frozen=True)
class Order:
    """The download: source and target.

    `revision` may be empty for the default branch. `allow` and `ignore` are patterns of
    files, or None.
    """

    repo: str
    revision: str
    artefact_key: str
    target: Path
    requirements: str
    allow: list[str] | None
    ignore: list[str] | None

    @classmethod
    def from_environment(cls) -> "Order":
        """Read the order from the environment.

        A missing variable is a defect of the Job.
        """
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
    """Carry out the order of the environment; return the exit code."""
    return run(fill)


def fill() -> None:
    """Fill the volume, unless it is filled already."""
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
    """Download, check the files, and write the marker."""
    try:
        info = hub.HfApi().model_info(
            order.repo, revision=order.revision or None, files_metadata=True
        )
        sizes = selected(
            {file.rfilename: file.size for file in info.siblings or []}, hub, order
        )
        remove_others(order.target, sizes)
        # A file of unknown size counts as empty.
        check_space(
            order.target,
            sum(
                size or 0
                for name, size in sizes.items()
                if not arrived(order.target / name, size)
            ),
        )
        say(f"downloading {order.repo} at {info.sha}: {len(sizes)} files")
        patterns = {"allow_patterns": order.allow, "ignore_patterns": order.ignore}
        hub.snapshot_download(
            repo_id=order.repo,
            revision=info.sha,
            local_dir=str(order.target),
            **patterns,
        )
    except hub.errors.HfHubHTTPError as error:
        raise verdict_of(error, hub, order) from error
    check_files(order.target, sizes)
    write_marker(order.target, order.artefact_key, "HuggingFace", order.repo, info.sha)


def selected(
    sizes: dict[str, int | None], hub: Any, order: Order
) -> dict[str, int | None]:
    """Return the files that the patterns select, by the client's own rules."""
    names = set(
        hub.utils.filter_repo_objects(
            sizes, allow_patterns=order.allow, ignore_patterns=order.ignore
        )
    )
    if sizes and not names:
        raise Hopeless(
            NOT_FOUND,
            f"allowPatterns and ignorePatterns select none of the {len(sizes)} files "
            f"of {order.repo}",
        )
    return {name: size for name, size in sizes.items() if name in names}


def remove_others(target: Path, sizes: Mapping[str, int | None]) -> None:
    """Remove downloaded files that this revision does not have.

    A branch may have moved, and engines load all files. Files of another size are
    removed too, because they would count as missing space. The client itself replaces
    files that differ only in content. Files of others on the volume stay: the client
    records its own files.
    """
    notes = target / WORK[1] / "download"
    for note in notes.rglob(f"*{NOTE}"):
        name = note.relative_to(notes).as_posix().removesuffix(NOTE)
        if name not in sizes or not arrived(target / name, sizes[name]):
            (target / name).unlink(missing_ok=True)


def remove_partial(target: Path) -> None:
    """Remove the unfinished files of a killed process to free their space."""
    for path in (target / WORK[1]).rglob("*.incomplete"):
        path.unlink(missing_ok=True)
    shutil.rmtree(target / WORK[0], ignore_errors=True)


def remove_work(target: Path) -> None:
    """Remove the client's download state.

    Files that cannot be removed only cost space.
    """
    for name in WORK:
        shutil.rmtree(target / name, ignore_errors=True)
    with contextlib.suppress(OSError):
        (target / WORK[1]).parent.rmdir()


def verdict_of(error: Any, hub: Any, order: Order) -> Exception:
    """Map an error of the hub to an exit code."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    what = f"{order.repo}{f' at {order.revision}' if order.revision else ''}"
    if isinstance(error, hub.errors.GatedRepoError):
        return Hopeless(
            AUTH_REFUSED, f"{what} is gated: the token has no access ({error})"
        )
    if isinstance(error, hub.errors.RepositoryNotFoundError) and not os.environ.get(
        TOKEN
    ):
        # Without a token the hub answers 401 for missing repositories as for private
        # ones.
        return Hopeless(
            NOT_FOUND,
            f"{what} does not exist, or is private and no token was given ({error})",
        )
    if status in UNAUTHORIZED:
        return Hopeless(AUTH_REFUSED, f"the hub refused the token for {what} ({error})")
    if status == MISSING:
        return Hopeless(NOT_FOUND, f"{what} does not exist ({error})")
    return OSError(errno.EIO, f"the hub answered {status} for {what} ({error})")


if __name__ == "__main__":
    sys.exit(main())
