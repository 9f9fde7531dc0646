"""The settings of a command, the address of the front, and the testbed's home folder.

`modelplane up` writes its settings to the home folder, so a user who ran it does not
have to name an address. Every command reads them unless `MODELPLANE_CONFIG` names
another file. `down` removes the file.
"""

import ipaddress
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError
from ruamel.yaml import YAML

from api_types.environment import CONFIG_VARIABLE, HOME_VARIABLE, SERVER_VARIABLE
from api_types.settings import (
    Settings,
    UnreadableSettings,
    bad_settings,
    read_settings_file,
)
from fleet_client.errors import Refused

_VARIABLES = "MODELPLANE_* variables"
_HOW = f"write it as https://HOST:PORT, in --server or {SERVER_VARIABLE}"
_SHOWN_MAX = 200


def home_folder() -> Path:
    """Return the folder of the testbed on this machine, whether or not it exists."""
    if named := os.environ.get(HOME_VARIABLE):
        return Path(named).expanduser().absolute()
    shared = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(shared).expanduser().absolute() / "modelplane" / "testbed"


def local_settings_file() -> Path:
    """Return the settings file that `modelplane up` writes and `down` removes."""
    return home_folder() / "config.yaml"


def load_settings() -> Settings:
    """Read the settings: environment over file over defaults.

    Raise `Refused` with all bad keys.
    """
    named = os.environ.get(CONFIG_VARIABLE)
    file = Path(named).expanduser() if named else local_settings_file()
    if named and not file.is_file():
        raise Refused(
            f"there is no settings file {file}",
            next_step=f"set {CONFIG_VARIABLE} to a file that exists, or unset it",
        )
    read_settings(file)
    with _config_variable(file):
        return settings_of(
            {}, f"{file} or in {_VARIABLES}" if file.is_file() else _VARIABLES
        )


def settings_of(tree: Mapping[str, object], source: str = _VARIABLES) -> Settings:
    """Read the settings: `tree` over environment over file over defaults.

    Raise `Refused` with all bad keys.
    """
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise Refused(
            "the settings are not usable",
            details=bad_settings(error),
            next_step=f"fix these keys in {source}",
        ) from error


def front_named() -> str:
    """Return the address of the front as the user wrote it, or "" for Temporal.

    Raise `Refused` if the address is set but empty, for example by a script whose own
    variable is unset. The user meant another fleet then.
    """
    written = os.environ.get(SERVER_VARIABLE)
    if written is not None and not written.strip():
        raise Refused(
            "the address of the front is empty",
            next_step=f"{_HOW}; to use Temporal, remove --server and unset {SERVER_VARIABLE}",
        )
    return (written or "").strip()


def front_address() -> str:
    """Return the address of the front without a trailing slash.

    Raise `Refused` if it is invalid.
    """
    written = front_named()
    if "@" in written:
        # Do not show the part before the @, the query or the fragment: each may be
        # secret.
        raise Refused(
            "the address of the front has a user or password in it",
            next_step=f"{_HOW}; pass a token with --token-file",
        )
    shown = written.partition("?")[0].partition("#")[0][:_SHOWN_MAX]
    try:
        parts = urlsplit(written)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise Refused(
            f"{shown!r} is not the address of a front", next_step=_HOW
        ) from error
    is_plain = (
        not any((parts.path.strip("/"), parts.query, parts.fragment))
        and written.isascii()
        and written.isprintable()
    )
    if (
        parts.scheme not in ("https", "http")
        or not host
        or " " in written
        or not is_plain
    ):
        raise Refused(f"{shown!r} is not the address of a front", next_step=_HOW)
    if parts.scheme == "http" and not _is_loopback(host):
        raise Refused(
            f"{shown} is not encrypted: others on the network could read the "
            "token and change requests",
            next_step="write https://; http:// is for a front on this machine",
        )
    shown_host = f"[{host}]" if ":" in host else host
    shown_port = f":{port}" if port is not None else ""
    return f"{parts.scheme}://{shown_host}{shown_port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def needs_temporal(why: str, address: str = "") -> Refused:
    """Return the error for an operation that the front cannot do.

    `why` completes the message "this command needs Temporal: ". `address` is the
    address of the front, if it was checked.
    """
    return Refused(
        f"this command needs Temporal: {why}",
        details=[f"commands go through the front at {address}"] if address else [],
        next_step=(
            "run it with access to Temporal, without --server and with "
            f"{SERVER_VARIABLE} unset, or ask an administrator of the fleet"
        ),
    )


def require_temporal(why: str) -> None:
    """Raise `Refused` if commands go through the front; see `needs_temporal`."""
    if front_named():
        raise needs_temporal(why, front_address())


@contextmanager
def _config_variable(file: Path) -> Iterator[None]:
    """Set `MODELPLANE_CONFIG` while the settings are read.

    The settings class finds its file only through this variable.
    """
    before = os.environ.get(CONFIG_VARIABLE)
    if file.is_file():
        os.environ[CONFIG_VARIABLE] = str(file)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(CONFIG_VARIABLE, None)


def write_settings(file: Path, tree: dict[str, object]) -> None:
    """Write a settings file that only this user may read."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = file.with_suffix(".new")
    with beside.open("w", encoding="utf-8") as stream:
        YAML(typ="safe", pure=True).dump(tree, stream)
    beside.chmod(0o600)
    beside.replace(file)


def read_settings(file: Path) -> dict[str, object]:
    """Return the tree of a settings file, or an empty one without a file.

    Raise `Refused` if it is not a YAML mapping.
    """
    try:
        return read_settings_file(file)
    except UnreadableSettings as error:
        raise Refused(str(error), next_step="fix the settings file") from None
