"""Facts of this machine that `modelplane doctor` judges. Reading them changes nothing."""

import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

PROGRAMS = ("git", "go", "make")
NAMESPACE_PROGRAMS = ("unshare", "ip", "mount")
_KIB = 1 << 10
_CLOCK_URL_DEFAULT = "https://pypi.org/"
_SECONDS = 5.0
# A user and password in the address of a registry or proxy.
_CREDENTIAL = re.compile(r"(?<=//)[^/@\s]*@")


@dataclass(frozen=True)
class MachineFacts:
    """Properties of a machine that matter to `modelplane up`.

    Sizes are in bytes. `free_bytes` is by folder. `clock_seconds` is how far the clock
    is ahead of a server's; None if no server answered, for the reason in `silent`.
    """

    cores: int
    memory_bytes: int
    free_bytes: Mapping[str, int]
    unwritable: tuple[str, ...] = ()
    python: tuple[int, int] = (3, 11)
    missing: frozenset[str] = frozenset()
    installed: bool = True
    """Whether every program of the fleet is in the cache or on PATH."""
    ports: int = 0
    """How many loopback ports can be bound, of the tried ones."""
    ports_tried: int = 0
    namespaces: str = ""
    """Why no network namespace is possible; empty if one is."""
    registries: Mapping[str, str] = field(default_factory=dict)
    """The settings of package registries and proxies, without credentials."""
    clock_seconds: float | None = None
    silent: str = ""


def clock_url(environment: Mapping[str, str]) -> str:
    """Return the server whose Date header is read: the package registry in use."""
    return environment.get("PIP_INDEX_URL") or _CLOCK_URL_DEFAULT


def registries(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that set registries and proxies, without credentials."""
    known = ("PIP_INDEX_URL", "GOPROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
    found = {
        name: environment.get(name) or environment.get(name.lower()) for name in known
    }
    return {name: _CREDENTIAL.sub("", value) for name, value in found.items() if value}


def read_clock(url: str) -> tuple[float | None, str]:
    """Return the seconds by which this clock is ahead of a server's, or why not.

    An error response has a date too.
    """
    host = urlsplit(url).hostname or "the registry"
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - checked below
    if not url.startswith(("https://", "http://")):
        return None, f"{host}: not a URL of HTTP"
    before = time.time()
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            date = answer.headers.get("Date")
    except urllib.error.HTTPError as refused:
        date = refused.headers.get("Date")
    except (OSError, ValueError) as error:
        return None, f"{host} does not answer: {getattr(error, 'reason', error)}"
    if not date:
        return None, f"{host} sends no date"
    # The header has whole seconds, and the request took time.
    middle = (before + time.time()) / 2
    return middle - parsedate_to_datetime(date).timestamp() - 0.5, ""


def existing_folder(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def read_facts(home: Path, environment: Mapping[str, str]) -> MachineFacts:
    """Read the facts of this machine for a fleet in `home`."""
    # The testbed is slow to import.
    from testbed.dataplane.config import obstacle  # noqa: PLC0415
    from testbed.fleet.home import free_ports  # noqa: PLC0415
    from testbed.programs.install import Installer, cache_folder, needed  # noqa: PLC0415

    folders = {str(home): home, str(cache_folder()): cache_folder()}
    existing = {name: existing_folder(folder) for name, folder in folders.items()}
    clock, silent = read_clock(clock_url(environment))
    ports, tried = free_ports()
    return MachineFacts(
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=_available_memory(),
        free_bytes={
            name: shutil.disk_usage(folder).free for name, folder in existing.items()
        },
        unwritable=tuple(
            name for name, folder in existing.items() if not os.access(folder, os.W_OK)
        ),
        python=sys.version_info[:2],
        missing=frozenset(
            name for name in (*PROGRAMS, *NAMESPACE_PROGRAMS) if not shutil.which(name)
        ),
        installed=Installer().has(needed(data_plane=True)),
        ports=ports,
        ports_tried=tried,
        namespaces=obstacle() or "",
        registries=registries(environment),
        clock_seconds=clock,
        silent=silent,
    )


def _available_memory() -> int:
    """Return the memory that programs can still get, within the limit of the cgroup."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    available = next(line for line in lines if line.startswith("MemAvailable:"))
    found = int(available.split()[1]) * _KIB
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii")
    except OSError:
        return found
    return found if limit == "max" else min(found, int(limit) - int(used))
