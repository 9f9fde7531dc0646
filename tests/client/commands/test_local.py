"""The parts of `modelplane up` and `down`. test_fleet.py runs both on a real fleet."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api_types.environment import HOME_VARIABLE
from api_types.sections.clusters import ControlClusterSettings
from api_types.sections.front import FrontSettings
from api_types.settings import Settings
from client.failures import ExitCode
from client.local import front, processes
from client.local.program import program_as_typed
from testbed.running import Running
from testbed.testbed import Testbed
from tests.client.commands.local_fleet import kubectl
from tests.client.conftest import Cli

FLEET = """
classes:
  small:
    devices:
      - name: gpu
        driver: gpu.nvidia.com
        deviceClassName: gpu.nvidia.com
        count: 2
        capacity: {memory: {value: 81559Mi}}
clusters:
  - name: only
    labels: {modelplane.ai/region: here}
    pools: [{name: small, class: small, nodes: 2}]
"""


@pytest.mark.parametrize(
    ("typed", "path", "said"),
    [
        (".venv/bin/modelplane", "", ".venv/bin/modelplane"),
        (".venv/bin/modelplane", "other/bin", ".venv/bin/modelplane"),
        (".venv/bin/modelplane", ".venv/bin", "modelplane"),
        ("a b/modelplane", "", "'a b/modelplane'"),
        ("client/main.py", ".venv/bin", f"{sys.executable} -m client.main"),
    ],
    ids=[
        "by its path",
        "another one is on PATH",
        "by PATH",
        "a path to be quoted",
        "as a module",
    ],
)
def test_the_next_commands_work_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, path: str, said: str
) -> None:
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
        pass


@pytest.mark.parametrize(
    ("control", "want"),
    [
        (
            object(),
            {**ControlClusterSettings().model_dump(), "name": "control-kubeconfig"},
        ),
        (None, ControlClusterSettings().model_dump()),
    ],
)
def test_a_worker_gets_the_settings_of_the_control_cluster(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    control: object,
    want: dict[str, Any],
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    running = SimpleNamespace(
        temporal_address="127.0.0.1:1",
        temporal_ui="http://127.0.0.1:2",
        home=tmp_path,
        control=control,
        clouds=None,
    )
    settings = processes._settings(
        cast(Running, running), cast(Testbed, NothingRuns()), Path("/opt/helm")
    )
    assert settings.stack.helm == "/opt/helm"
    assert settings.control_cluster.model_dump() == want


class Started:
    """A testbed that records started processes."""

    def __init__(self) -> None:
        self.started: list[tuple[str, list[str], dict[str, str]]] = []

    def start_process(self, name: str, argv: list[str], env: dict[str, str]) -> None:
        self.started.append((name, argv, env))


def test_the_front_of_the_fleet_has_no_setting_of_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The front starts in an environment with every setting of a front, and has none of
    them.
    """
    testbed, config = Started(), tmp_path / "config.yaml"
    config.write_text("{}")
    front.start_front(cast(Testbed, testbed), Settings(), tmp_path, config, 20123)
    assert front.front_port(tmp_path) == 20123
    ((name, argv, more),) = testbed.started
    assert (name, argv[-2:], more["MODELPLANE_CONFIG"]) == (
        "front",
        ["-m", "front.main"],
        str(config),
    )
    for field in FrontSettings.model_fields:
        monkeypatch.setenv(f"MODELPLANE_FRONT__{field.upper()}", "of another front")
    monkeypatch.setenv("MODELPLANE_FRONT", "{}")
    script = (
        "import os; print(*sorted(each for each in os.environ.items() if "
        "each[0].startswith('MODELPLANE_FRONT')), sep='\\n')"
    )
    told = subprocess.run(
        [*argv[:-2], "-c", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    audit = tmp_path / "logs" / "front-audit.log"
    assert told == [
        f"('MODELPLANE_FRONT__AUDIT_FILE', '{audit}')",
        "('MODELPLANE_FRONT__LISTEN', '127.0.0.1:20123')",
    ]


def test_changes_of_kubectl_in_the_kubeconfig_of_the_front_stay_and_so_does_the_port(
    tmp_path: Path,
) -> None:
    assert front.front_port(tmp_path) == 0
    front.keep_port(tmp_path, 20123)
    kubeconfig = front.front_kubeconfig(tmp_path)
    kubectl(kubeconfig, "config", "set-context", "--current", "--namespace=ml-team")
    kubectl(
        kubeconfig,
        "config",
        "set-cluster",
        "another",
        "--server=https://127.0.0.1:6443",
    )
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


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (None, []),
        ("unshare fails", ["unshare fails; requests to models get no answer"]),
    ],
)
def test_a_machine_without_network_namespaces_has_no_data_plane(
    why: str | None, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "obstacle", lambda: why)
    lines: list[str] = []
    assert processes._can_have_data_plane(lines.append) is (why is None)
    assert [line.partition(" (")[0] for line in lines] == said


def test_down_without_a_fleet_succeeds_and_deletes_nothing(
    cli: Cli, nowhere: Path
) -> None:
    nowhere.mkdir()
    (nowhere / "precious").write_text("mine")
    result = cli("down", "--wipe")
    assert (result.code, result.err) == (0, f"no fleet was started in {nowhere}\n")
    assert (nowhere / "precious").read_text() == "mine"


def test_a_repeated_down_reports_that_no_fleet_was_running(
    cli: Cli, nowhere: Path
) -> None:
    nowhere.mkdir()
    (nowhere / "state.json").write_text("{}")
    result = cli("down")
    assert (result.code, result.out, result.err) == (
        0,
        "",
        f"nothing was running in {nowhere}\n",
    )
    assert cli("down", "--wipe").err == f"down and wiped: {nowhere}\n"


@pytest.mark.usefixtures("nowhere")
def test_a_bad_fleet_file_is_refused_before_anything_starts(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET.replace("class: small", "class: big"))
    result = cli("up", "--fleet", str(tmp_path / "fleet.yaml"))
    assert result.code == ExitCode.REFUSED
    assert "big is not under classes" in result.err


@pytest.mark.usefixtures("nowhere")
def test_a_bad_manifest_is_refused_before_anything_starts(
    cli: Cli, tmp_path: Path, nowhere: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("kind: ModelDeployment\n")
    result = cli("up", "--apply", str(tmp_path / "bad.yaml"))
    assert result.code == ExitCode.REFUSED
    assert not nowhere.exists()
