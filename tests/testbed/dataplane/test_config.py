"""A machine's support of the data plane is known before anything is started."""

import json
import os
from pathlib import Path

import pytest

from testbed.cluster.control_plane import ClusterControlPlane
from testbed.dataplane.config import obstacle, port_name, processes
from testbed.fleet.home import Home


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A single folder with programs, which has those of the data plane."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("unshare", "ip", "mount"):
        write(tmp_path / name, "exit 0")
    return tmp_path


def write(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize("missing", ["unshare", "ip", "mount"])
def test_a_program_that_is_missing_is_named(missing: str, programs: Path) -> None:
    (programs / missing).unlink()
    assert (
        obstacle()
        == f"the data plane needs the program {missing}; install util-linux, mount and iproute2"
    )


def test_a_machine_that_forbids_namespaces_says_so(programs: Path) -> None:
    write(
        programs / "unshare",
        "echo unshare: unshare failed: Operation not permitted >&2; exit 1",
    )
    assert obstacle() == (
        "the data plane needs a network namespace, and `unshare` fails here: "
        "unshare: unshare failed: Operation not permitted"
    )


@pytest.mark.usefixtures("programs")
def test_a_machine_with_namespaces_has_no_obstacle() -> None:
    assert obstacle() is None


@pytest.mark.parametrize(
    ("user", "own"),
    [
        (0, "--net --mount -- true"),
        (1000, "--user --map-root-user --net --mount -- true"),
    ],
)
def test_only_root_works_without_a_user_namespace(
    user: int, own: str, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    write(programs / "unshare", f'[ "$*" = "{own}" ]')
    assert obstacle() is None


def test_traefik_pauses_far_less_than_by_default_between_two_changes(
    programs: Path, tmp_path: Path
) -> None:
    """With Traefik's default of two seconds, the second of two route changes would
    apply only after that pause.
    """
    home = Home(tmp_path / "home")
    home.number_clusters(["lab"])
    plane = ClusterControlPlane("lab", home, {}, simulated=True, data_plane=True)
    home.choose_ports([*plane.ports(), port_name("lab")], print)
    processes([plane], programs / "traefik", 1)
    (traefik,) = json.loads((home.folder / "enclave.json").read_text())["traefiks"]
    assert "--providers.providersThrottleDuration=100ms" in traefik["argv"]
