"""The supervisor keeps desired processes running, stops all others, and never runs
twice in one home.
"""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.process.processes import (
    OWNER_VARIABLE,
    SUPERVISOR,
    ProcessFiles,
    ProcessIdentity,
    ProcessSpec,
    start_time,
)
from tests.environment.waiting import TIMEOUT_SECONDS

pytestmark = pytest.mark.slow


class House:
    """A home with only a supervisor."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.files = ProcessFiles(folder)

    def start(self) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "testbed.process.supervisor", str(self.home)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )

    def send(self, number: int) -> None:
        supervisor = self.files.identity(SUPERVISOR)
        if supervisor:
            os.kill(supervisor.pid, number)

    def want(self, name: str, script: str, **more: object) -> None:
        command = ["/bin/sh", "-c", script]
        self.files.want(ProcessSpec(name, command, **more))  # type: ignore[arg-type]
        self.send(signal.SIGHUP)

    def log(self, name: str) -> str:
        path = self.home / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    assert house.start().returncode == 0
    yield house
    house.send(signal.SIGKILL)


def test_a_started_process_runs_and_is_found_by_its_name(
    house: House, eventually: Callable[..., None]
) -> None:
    house.want("one", "echo up; exec sleep 100")
    eventually(lambda: house.files.identity("one") is not None)
    eventually(lambda: house.log("one"), equals="up\n")


def test_the_kernel_wakes_a_process_for_several_timers_at_once(
    house: House, eventually: Callable[..., None]
) -> None:
    house.want("idle", "exec cat /proc/self/timerslack_ns")
    eventually(lambda: house.log("idle")[:9], equals="50000000\n")


def test_a_process_that_ends_is_started_again_more_and_more_slowly(
    house: House, eventually: Callable[..., None]
) -> None:
    house.want("failing", "date +%s.%N; exit 3")
    eventually(lambda: len(house.log("failing").splitlines()) >= 4)
    times = [float(line) for line in house.log("failing").splitlines()[:4]]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[-1] > 2 * pauses[0]
    assert "failing ended with 3" in house.log(SUPERVISOR)


def test_a_program_that_is_not_there_is_reported_and_tried_again(
    house: House, eventually: Callable[..., None]
) -> None:
    house.files.want(ProcessSpec("missing", ["/nowhere/program"]))
    house.send(signal.SIGHUP)
    eventually(lambda: house.log("missing").count("cannot be started") >= 2)


def test_everything_ends_in_stages_with_the_last_stage_first(
    house: House, eventually: Callable[..., None]
) -> None:
    order = house.home / "order"
    for name, stage in (("store", 1), ("server", 2), ("worker", 9)):
        house.want(
            name,
            f"trap 'sleep 0.2; echo {name} >> {order}; exit' TERM; while :; do sleep 0.05; done",
            stage=stage,
        )
    eventually(
        lambda: all(
            house.files.identity(name) for name in ("store", "server", "worker")
        )
    )
    identity = house.files.identity(SUPERVISOR)
    assert identity

    house.send(signal.SIGTERM)

    eventually(lambda: identity.alive(), equals=False)  # noqa: PLW0108
    assert order.read_text().split() == ["worker", "server", "store"]


def test_a_process_that_does_not_end_is_killed(
    house: House, eventually: Callable[..., None]
) -> None:
    house.want("stubborn", "trap '' TERM; while :; do sleep 0.05; done")
    eventually(lambda: house.files.identity("stubborn") is not None)
    stubborn = house.files.identity("stubborn")
    assert stubborn
    house.send(signal.SIGTERM)
    eventually(lambda: stubborn.alive(), equals=False)  # noqa: PLW0108


def test_a_second_supervisor_of_the_same_home_steps_back(house: House) -> None:
    first = house.files.identity(SUPERVISOR)
    answer = house.start()
    assert answer.returncode == 1
    assert "already runs" in answer.stderr
    assert house.files.identity(SUPERVISOR) == first


def test_a_reused_pid_is_not_mistaken_for_the_earlier_process(tmp_path: Path) -> None:
    mine = start_time(os.getpid())
    assert mine is not None
    files = ProcessFiles(tmp_path)
    files.note("same", ProcessIdentity(os.getpid(), mine))
    files.note("reused", ProcessIdentity(os.getpid(), mine - 1))
    assert files.identity("same") == ProcessIdentity(os.getpid(), mine)
    assert files.identity("reused") is None


def test_a_zombie_process_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(
        os.P_PID, child.pid, os.WEXITED | os.WNOWAIT
    )  # it has ended, and is a zombie
    assert start_time(child.pid) is None
    child.wait()


def test_all_processes_end_with_the_owner_of_their_testbed(
    tmp_path: Path, eventually: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path)
    with subprocess.Popen(["sleep", "600"]) as owner:
        monkeypatch.setenv(OWNER_VARIABLE, str(owner.pid))
        assert house.start().returncode == 0
        house.want("one", "exec sleep 100")
        eventually(lambda: house.files.identity("one") is not None)
        child = house.files.identity("one")
        assert child
        owner.kill()
    eventually(lambda: house.files.identity(SUPERVISOR) is None)
    assert not child.alive()
