"""Have every program and definition the testbed needs, once per version.

Looked for in this order: PATH (only with exactly the pinned version), the cache, the official download, a build from the pinned Go module.
A build happens in a folder beside its final place and is renamed when complete, under a lock, so that neither an interrupted build nor two
runs at once leave something half-made behind.
"""

import fcntl
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.documents import load_all, write_json
from testbed.programs import debian
from testbed.programs.download import Downloader
from testbed.programs.versions import ADD_ONS, DEFINITIONS, KEDA_DEFINITIONS, KEDA_TOOLS, TOOLS, Definitions, LeftOut, Tool

PROGRAMS_VARIABLE = "MODELPLANE_PROGRAMS"
MODULES = Path(__file__).parent / "tools"
PROGRESS_SECONDS = 20
VERSION_SECONDS = 10
_VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+)(-[0-9A-Za-z.-]+)?")


class InstallFailed(Exception):
    """A program or definition cannot be had; the message says what was tried and what to do."""


def cache_folder() -> Path:
    """Where programs are kept: `$MODELPLANE_PROGRAMS`, else `modelplane` in the user's cache folder."""
    if explicit := os.environ.get(PROGRAMS_VARIABLE):
        return Path(explicit).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "modelplane"


class Installer:
    """Finds or makes programs; `say` takes progress."""

    def __init__(self, say: Callable[[str], None] = print, cache: Path | None = None) -> None:
        self._say = say
        self._cache = cache or cache_folder()
        self._downloader = Downloader(say)

    def install_all(self) -> dict[str, Path]:
        """Have everything in versions.py. Maps the name of each program to its path."""
        programs = self.programs(TOOLS)
        for definitions in DEFINITIONS:
            self.definitions(definitions.name)
        return programs

    def programs(self, tools: Iterable[Tool]) -> dict[str, Path]:
        """Have the programs of `tools`. Raises InstallFailed for the first that cannot be had."""
        return {binary: path for tool in tools for binary, path in self._have(tool).items()}

    def definitions(self, name: str) -> Path:
        """Have the manifests another project ships in its Go module; answers a folder with the layout of that module.

        Each file is a JSON list of the documents of the YAML file it comes from.
        """
        wanted = next(each for each in (*DEFINITIONS, *ADD_ONS, *KEDA_DEFINITIONS) if each.name == name)
        place = self._cache / "definitions" / f"{wanted.name}-{wanted.version}"
        with self._lock(place):
            if not place.is_dir():
                self._say(f"{wanted.name} {wanted.version}: reading its definitions")
                with _beside(place) as draft:
                    _copy_definitions(wanted, draft)
        return place

    def browser(self) -> Path:
        """Have a Chromium that needs no screen, for tests of pages. Raises InstallFailed."""
        if found := debian.found_on_path(debian.BROWSER):
            return found
        place = self._cache / "debian" / debian.BROWSER.name
        program = place / "bin" / debian.BROWSER.name
        with self._lock(place):
            # Its libraries are those of this machine but for the ones that were missing: another machine may lack more.
            if not debian.starts(program):
                with _beside(place) as draft:
                    try:
                        debian.unpack(debian.BROWSER, draft, self._say)
                    except debian.PackageFailed as error:
                        raise InstallFailed(str(error)) from error
        return program

    def _have(self, tool: Tool) -> dict[str, Path]:
        if found := on_path(tool):
            return found
        place = self._cache / "tools" / f"{tool.name}-{tool.version}"
        programs = {binary: place / "bin" / binary for binary in tool.packages}
        with self._lock(place):
            if not all(path.is_file() for path in programs.values()):
                with _beside(place) as draft:
                    (draft / "bin").mkdir()
                    if not self._downloader.fetch(tool, draft / "bin"):
                        self._build(tool, draft / "bin")
        return programs

    @contextmanager
    def _lock(self, place: Path) -> Iterator[None]:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_name(f"{place.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say(f"{place.name}: another run is installing it; waiting")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _build(self, tool: Tool, target: Path) -> None:
        go = _go(tool.name, tool.version)
        self._say(f"{tool.name} {tool.version}: building with go, about {tool.minutes:g} min on two cores, once")
        stamp = " ".join(["-s", "-w", *(f"-X {variable}" for variable in tool.linker_variables)])
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch, (Path(scratch) / "log").open("w+") as log:
            prepare(tool, go, Path(scratch))
            # Several packages go to a folder, each under the last part of its path; one package can be named freely.
            output = f"{target}{os.sep}" if len(tool.packages) > 1 else str(target / next(iter(tool.packages)))
            # Debugging information would be computed for every package, and the linker drops it.
            quick = ("-gcflags=all=-dwarf=false", "-ldflags", stamp)
            command = [go, "build", "-trimpath", "-mod=readonly", *quick, "-o", output, *tool.packages.values()]
            # A compiler that rarely collects garbage is faster; its largest process then takes 1.7 GB.
            environment = {"GOGC": "400"} | os.environ | {"GOWORK": "off"}
            with subprocess.Popen(command, cwd=scratch, env=environment, stdout=log, stderr=log) as build:
                while (code := _wait(build, PROGRESS_SECONDS)) is None:
                    self._say(f"{tool.name} {tool.version}: building, {time.monotonic() - began:.0f} s so far")
            if code != 0:
                log.seek(0)
                tail = "".join(log.readlines()[-15:])
                raise InstallFailed(f"{tool.name} {tool.version}: go build failed; put the program on PATH or repair the build:\n{tail}")
        if len(tool.packages) > 1:
            for binary, package in tool.packages.items():
                (target / package.rsplit("/", 1)[-1]).rename(target / binary)
        self._say(f"{tool.name} {tool.version}: built in {time.monotonic() - began:.0f} s")


def prepare(tool: Tool, go: str, build: Path) -> None:
    """Write the module that builds `tool` into an empty folder: the installed package may lie in one that cannot be written."""
    module = MODULES / tool.module
    for source in (path for pattern in ("go.*", "*/go.mod", "*/*.go") for path in module.glob(pattern)):
        # A folder is a module that go.mod takes instead of one that is published nowhere.
        target = build / source.relative_to(module)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, target)
    for left_out in tool.left_out:
        leave_out(left_out, go, module, build)


def leave_out(left_out: LeftOut, go: str, tool_module: Path, build: Path) -> None:
    """Let the build take a copy of a module in which one package is a file of ours."""
    copy = build / "modules" / left_out.module.replace("/", "-")
    if not copy.exists():
        shutil.copytree(_module(go, left_out.module, build), copy, copy_function=shutil.copyfile)
        for folder, _, _ in os.walk(copy):
            Path(folder).chmod(0o755)  # modules lie in folders that cannot be written
        subprocess.run([go, "mod", "edit", f"-replace={left_out.module}={copy}"], cwd=build, check=True)
    package = copy / left_out.folder
    for file in package.glob("*.go"):
        file.unlink()
    shutil.copyfile(tool_module / left_out.file, package / left_out.file)


def cached(name: str) -> list[Path]:
    """Where the programs of a tool are once they are in the cache; nothing is installed."""
    return [
        cache_folder() / "tools" / f"{tool.name}-{tool.version}" / "bin" / binary
        for tool in (*TOOLS, *KEDA_TOOLS)
        if tool.name == name
        for binary in tool.packages
    ]


def needed(*, data_plane: bool) -> list[Tool]:
    """List what `up` and its worker cannot do without; the rest is there for people, or only for a data plane."""
    return [tool for tool in TOOLS if tool.name not in ("kubectl", *(() if data_plane else ("traefik",)))]


def on_path(tool: Tool) -> dict[str, Path] | None:
    """Find every program of `tool` on PATH with the pinned version, else None."""
    if tool.version_arguments is None:
        return None
    found = {}
    for binary in tool.packages:
        path = shutil.which(binary)
        if path is None or version_of(path, tool.version_arguments) != tool.version:
            return None
        found[binary] = Path(path)
    return found


@functools.cache
def version_of(path: str, arguments: tuple[str, ...]) -> str | None:
    """Ask a program for its version; None when it does not say one or is a pre-release."""
    try:
        answer = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stdout)
    return None if match is None or match[2] else match[1]


def _copy_definitions(wanted: Definitions, target: Path) -> None:
    module = _module(_go(wanted.name, wanted.version), f"{wanted.module}@v{wanted.version}", target, wanted.checksum)
    for pattern in wanted.files:
        files = sorted(module.glob(pattern))
        if not files:
            raise InstallFailed(
                f"{wanted.name} {wanted.version}: its module has no file {pattern}; the pattern in versions.py is out of date"
            )
        for file in files:
            # As JSON: parsing 60,000 lines of YAML at each start would cost several seconds.
            write_json(target / file.relative_to(module).with_suffix(".json"), load_all(file.read_text()))


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """Give a folder to fill that becomes `place` at the end, or vanishes."""
    for leftover in place.parent.glob(f".{place.name}.*"):
        shutil.rmtree(leftover)  # we hold the lock of this place, so nothing is still filling it
    draft = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        yield draft
        if place.exists():
            shutil.rmtree(place)
        draft.chmod(0o755)
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _module(go: str, module: str, cwd: Path, checksum: str = "") -> Path:
    """Have a Go module's source, which must have that checksum. Without `@version` it is that of the go.mod in `cwd`, with its go.sum."""
    command = [go, "mod", "download", "-json", module]
    answer = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    try:
        told = json.loads(answer.stdout)
        if checksum and told["Sum"] != checksum:
            raise InstallFailed(f"{module}: its checksum is {told['Sum']}, versions.py has {checksum}; the module was not used")
        return Path(told["Dir"])
    except (ValueError, KeyError):
        raise InstallFailed(f"{module}: `{' '.join(command)}` failed: {answer.stdout}{answer.stderr}") from None


def _go(name: str, version: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise InstallFailed(
            f"{name} {version}: not on PATH, not in the cache, not downloaded, and there is no go to build it; install Go 1.26 or newer"
        )
    return go


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
