"""`modelplane up` and `modelplane down`, from nothing to a Ready model and back."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from activities.clients.secrets.directory import SecretDirectory
from api_types.environment import HOME_VARIABLE
from api_types.sections.front import FrontSettings
from api_types.settings import ControlClusterSettings, Settings
from client.configuration import read_settings
from client.errors import ExitCode
from client.local import front, processes
from client.local.gateway import local_gateway_url
from client.local.program import program_as_typed
from testbed.running import Running
from testbed.testbed import Testbed
from tests.client.conftest import Cli
from tests.environment.waiting import TIMEOUT_SECONDS

FLEET = """
classes:
  small:
    devices:
      - {name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, count: 2, capacity: {memory: {value: 81559Mi}}}
clusters:
  - name: only
    labels: {modelplane.ai/region: here}
    pools: [{name: small, class: small, nodes: 2}]
"""
DEMO = Path(__file__).parents[3] / "examples" / "testbed" / "demo.yaml"


def modelplane(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the program as users do, in a process of its own."""
    environment = {**os.environ, HOME_VARIABLE: str(home), **more}
    command = [sys.executable, "-m", "client.main", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)


def kubectl(kubeconfig: Path, *words: str) -> str:
    """Run the machine's kubectl with nothing but a kubeconfig; gives what it prints."""
    program = shutil.which("kubectl")
    assert program, "kubectl is not on the PATH"
    command = [program, "--kubeconfig", str(kubeconfig), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS).stdout


def processes_of(home: Path) -> list[str]:
    """The command lines of all processes that name the home, those of zombies excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
            if str(home) in words:
                found.append(words)
    return found


@pytest.mark.testbed("shared")
def test_up_ends_with_a_ready_model_down_leaves_no_process_and_up_continues_with_the_data(tmp_path: Path) -> None:
    home, fleet = tmp_path / "home", tmp_path / "fleet.yaml"
    fleet.write_text(FLEET)
    try:
        up = modelplane(home, "up", "--fleet", str(fleet), "--apply", str(DEMO), "--wait")
        assert up.returncode == 0, up.stderr
        for line in (r"only +Existing +10\.245\.\d+\.1 +True", r"default +demo +2 +True", r"default +demo-\w{8} +only +True"):
            assert re.search(line, up.stdout), up.stdout
        assert re.search(
            r"ModelDeployment default/demo in the Temporal UI: http://127\.0\.0\.1:\d+/namespaces/default/workflows/\S+", up.stdout
        )
        assert re.search(r"Temporal CLI +/\S+/temporal --address 127\.0\.0\.1:\d+", up.stdout)
        gateway = re.search(r"^Gateway +(http://127\.0\.0\.1:\d+)$", up.stdout, re.MULTILINE)
        assert gateway, up.stdout
        assert local_gateway_url(home) == gateway[1]
        url = re.search(r"^Front +(http://127\.0\.0\.1:\d+) +\(development mode: no users, no tokens;", up.stdout, re.MULTILINE)
        assert url, up.stdout
        assert "front: DEVELOPMENT MODE: no users, no tokens, no TLS;" in up.stderr
        kubeconfig = home / "front.kubeconfig"
        assert f"kubectl       KUBECONFIG={kubeconfig}\n" in up.stdout
        assert kubectl(kubeconfig, "get", "md/demo", "-o", "name") == "modeldeployment.modelplane.ai/demo\n"
        kubectl(kubeconfig, "config", "set-context", "--current", "--namespace=ml-team")
        through_front = modelplane(home, "--server", url[1], "scale", "md/demo", "--replicas", "2")
        assert through_front.returncode == 0, through_front.stderr
        assert "/modeldeployments/demo/scale" in (home / "logs" / "front-audit.log").read_text()
        here = f"{sys.executable} -m client.main"
        assert f"Next          {here} get all, {here} describe md/demo, {here} down\n" in up.stdout
        # It answers, and has no route yet.
        assert httpx.get(f"{gateway[1]}/v1/models", trust_env=False, timeout=60).status_code == httpx.codes.NOT_FOUND
        reference = cast(dict[str, str], read_settings(home / "config.yaml")["controlCluster"])
        assert b"current-context: control" in asyncio.run(SecretDirectory(home / "secrets").get(**reference))
        before = json.loads(modelplane(home, "get", "md/demo", "-o", "json").stdout)

        down = modelplane(home, "down")
        assert down.returncode == 0, down.stderr
        assert processes_of(home) == []
        assert local_gateway_url(home) is None
        assert modelplane(home, "get", "md").returncode == ExitCode.UNREACHABLE
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url[1]}/healthz", trust_env=False, timeout=60)

        # Without --fleet it is the same fleet as before, not the built-in one.
        # A Temporal that the environment names belongs to another fleet: the clusters are registered with the one that was started.
        # So do variables of a front: the one that is started has neither users nor TLS.
        more = {"MODELPLANE_TEMPORAL__ADDRESS": "127.0.0.1:1", "MODELPLANE_FRONT__ACCESS_FILE": str(fleet)}
        again = modelplane(home, "up", "--no-data-plane", **more)
        assert again.returncode == 0, again.stderr
        assert f"Front         {url[1]} " in again.stdout, "its address stays, for kubeconfigs that were copied"
        assert kubectl(kubeconfig, "get", "md/demo", "-n", "default", "-o", "name") == "modeldeployment.modelplane.ai/demo\n"
        assert not re.search("^Gateway", again.stdout, re.MULTILINE)
        assert "inferencecluster/only unchanged" in again.stdout
        after = json.loads(modelplane(home, "get", "md/demo", "-o", "json").stdout)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert modelplane(home, "get", "ic", "-o", "name").stdout.split() == ["inferencecluster/only"]
    finally:
        wiped = modelplane(home, "down", "--wipe")
    assert wiped.returncode == 0, wiped.stderr
    assert not home.exists()
    assert processes_of(home) == []


@pytest.mark.parametrize(
    ("typed", "path", "said"),
    [
        (".venv/bin/modelplane", "", ".venv/bin/modelplane"),
        (".venv/bin/modelplane", "other/bin", ".venv/bin/modelplane"),
        (".venv/bin/modelplane", ".venv/bin", "modelplane"),
        ("a b/modelplane", "", "'a b/modelplane'"),
        ("client/main.py", ".venv/bin", f"{sys.executable} -m client.main"),
    ],
    ids=["by its path", "another one is on PATH", "by PATH", "a path to be quoted", "as a module"],
)
def test_the_next_commands_work_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, path: str, said: str) -> None:
    for folder in (".venv/bin", "other/bin"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "modelplane").touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / path) if path else "")
    monkeypatch.setattr("sys.argv", [typed, "up"])
    assert program_as_typed() == said


class NothingRuns:
    """A testbed without a worker."""

    def process_pid(self, name: str) -> int | None:
        del name
        return None

    def stop_process(self, name: str) -> None:
        """There is none."""


@pytest.mark.parametrize(
    ("control", "want"),
    [
        (object(), {**ControlClusterSettings().model_dump(), "name": "control-kubeconfig"}),
        (None, ControlClusterSettings().model_dump()),
    ],
)
def test_a_worker_is_told_of_the_control_cluster_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: object, want: dict[str, Any]
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    running = SimpleNamespace(temporal_address="127.0.0.1:1", temporal_ui="http://127.0.0.1:2", home=tmp_path, control=control, clouds=None)
    settings = processes._settings(cast(Running, running), cast(Testbed, NothingRuns()))
    assert settings.control_cluster.model_dump() == want


class Started:
    """A testbed that notes what is started."""

    def __init__(self) -> None:
        self.started: list[tuple[str, list[str], dict[str, str]]] = []

    def start_process(self, name: str, argv: list[str], env: dict[str, str]) -> None:
        """Note it."""
        self.started.append((name, argv, env))


def test_the_front_of_the_fleet_has_no_setting_of_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started with an environment in which every setting of a front is, and has none of them."""
    testbed, config = Started(), tmp_path / "config.yaml"
    config.write_text("{}")
    front.start_front(cast(Testbed, testbed), Settings(), tmp_path, config, 20123)
    assert front.front_port(tmp_path) == 20123
    ((name, argv, more),) = testbed.started
    assert (name, argv[-2:], more["MODELPLANE_CONFIG"]) == ("front", ["-m", "front.main"], str(config))
    for field in FrontSettings.model_fields:
        monkeypatch.setenv(f"MODELPLANE_FRONT__{field.upper()}", "of another front")
    monkeypatch.setenv("MODELPLANE_FRONT", "{}")
    script = "import os; print(*sorted(each for each in os.environ.items() if each[0].startswith('MODELPLANE_FRONT')), sep='\\n')"
    told = subprocess.run([*argv[:-2], "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    audit = tmp_path / "logs" / "front-audit.log"
    assert told == [f"('MODELPLANE_FRONT__AUDIT_FILE', '{audit}')", "('MODELPLANE_FRONT__LISTEN', '127.0.0.1:20123')"]


def test_what_kubectl_wrote_into_the_kubeconfig_of_the_front_stays_and_so_does_the_port(tmp_path: Path) -> None:
    assert front.front_port(tmp_path) == 0
    front.keep_port(tmp_path, 20123)
    kubeconfig = front.front_kubeconfig(tmp_path)
    kubectl(kubeconfig, "config", "set-context", "--current", "--namespace=ml-team")
    kubectl(kubeconfig, "config", "set-cluster", "another", "--server=https://127.0.0.1:6443")
    changed = kubeconfig.read_text()
    assert not changed.startswith("{"), "it is YAML now"
    assert front.front_port(tmp_path) == 20123
    front.keep_port(tmp_path, 20123)
    assert kubeconfig.read_text() == changed

    front.keep_port(tmp_path, 20124)
    assert front.front_port(tmp_path) == 20124
    assert "http://127.0.0.1:20124" in kubectl(kubeconfig, "config", "view", "--minify")
    kubeconfig.unlink()
    front.keep_port(tmp_path, 20124)
    assert "http://127.0.0.1:20124" in kubeconfig.read_text()


@pytest.mark.parametrize(("why", "said"), [(None, []), ("unshare fails", ["unshare fails; requests to models are answered by nobody"])])
def test_a_machine_without_network_namespaces_goes_without_a_data_plane(
    why: str | None, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "obstacle", lambda: why)
    lines: list[str] = []
    assert processes._can_have_data_plane(lines.append) is (why is None)
    assert [line.partition(" (")[0] for line in lines] == said


def test_down_where_nothing_was_started_is_no_error_and_deletes_nothing(cli: Cli, nowhere: Path) -> None:
    nowhere.mkdir()
    (nowhere / "precious").write_text("mine")
    result = cli("down", "--wipe")
    assert (result.code, result.err) == (0, f"no fleet was started in {nowhere}\n")
    assert (nowhere / "precious").read_text() == "mine"


def test_a_repeated_down_says_that_nothing_was_running(cli: Cli, nowhere: Path) -> None:
    nowhere.mkdir()
    (nowhere / "state.json").write_text("{}")
    result = cli("down")
    assert (result.code, result.out, result.err) == (0, "", f"nothing was running in {nowhere}\n")
    assert cli("down", "--wipe").err == f"down and wiped: {nowhere}\n"


@pytest.mark.usefixtures("nowhere")
def test_a_bad_fleet_file_is_refused_before_anything_starts(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET.replace("class: small", "class: big"))
    result = cli("up", "--fleet", str(tmp_path / "fleet.yaml"))
    assert result.code == ExitCode.REFUSED
    assert "big is not under classes" in result.err


@pytest.mark.usefixtures("nowhere")
def test_a_bad_manifest_is_refused_before_anything_starts(cli: Cli, tmp_path: Path, nowhere: Path) -> None:
    (tmp_path / "bad.yaml").write_text("kind: ModelDeployment\n")
    result = cli("up", "--apply", str(tmp_path / "bad.yaml"))
    assert result.code == ExitCode.REFUSED
    assert not nowhere.exists()
