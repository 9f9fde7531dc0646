"""The testbed that tests share: the built-in fleet without its control cluster.

Few tests need the control cluster.

  python -m tests.environment.shared_testbed up      start it and leave it running
  python -m tests.environment.shared_testbed down    stop it

With MODELPLANE_TESTBED_HOME set, tests use the running testbed.
"""

import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

import pytest

from testbed.fleet.fleet_file import BUILT_IN, FleetFile
from testbed.running import Running
from testbed.testbed import Testbed
from testbed.waiting import StartFailed
from tests.environment.summary import Summary

HOME_VARIABLE = "MODELPLANE_TESTBED_HOME"
HOME = Path(__file__).parents[2] / ".testbed"

# A start fails if the machine has no processor time for minutes. That says nothing
# about the code under test.
STARTS_MAX = 3


def kept_home() -> Path | None:
    """Return the folder of the testbed that stays running after the tests, or None."""
    named = os.environ.get(HOME_VARIABLE)
    return Path(named).resolve() if named else None


def shared_testbed(home: Path) -> Testbed:
    """Return the testbed of a folder.

    `modelplane up` finds the fleet file in that folder.
    """
    fleet = home / "fleet.yaml"
    fleet.parent.mkdir(parents=True, exist_ok=True)
    fleet.write_text(f"{BUILT_IN.read_text()}\ncontrol: false\n")
    return Testbed(home, FleetFile.load(fleet))


class Lent:
    """A plugin of the process with the terminal that owns the shared testbed.

    It stops the testbed after the run.
    """

    NAME = "modelplane-lent-testbed"

    def __init__(self) -> None:
        kept = kept_home()
        self._temporary = (
            None if kept else Path(tempfile.mkdtemp(prefix="modelplane-testbed-"))
        )
        self.home = self._temporary or (kept or HOME) / "shared"

    @classmethod
    def of(cls, config: pytest.Config) -> "Lent":
        plugin = config.pluginmanager.get_plugin(cls.NAME)
        assert isinstance(plugin, cls)
        return plugin

    def pytest_unconfigure(self) -> None:
        """Stop the testbed if a process started it.

        The processes of the lane have ended by now.
        """
        if self._temporary:
            if (self.home / "fleet.yaml").exists():
                shared_testbed(self.home).down()
            rmtree(self._temporary)


@contextmanager
def turn(home: Path) -> Iterator[None]:
    """Wait while other processes start the testbed of a folder.

    `modelplane up` would fail instead of waiting.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / "turn").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def started(owner: Testbed, summary: Summary) -> Running:
    """Start a testbed, and retry if a real part does not come up in time.

    The summary shows the time of each start.
    """
    for attempt in range(1, STARTS_MAX + 1):
        begun = time.monotonic()
        try:
            running = owner.up()
        except StartFailed as failed:
            summary.start_failed(str(failed))
            if attempt == STARTS_MAX:
                raise
            owner.down()
        else:
            summary.started(time.monotonic() - begun)
            return running
    raise AssertionError("the last attempt returns or raises")


def main(command: str) -> None:
    """Start or stop the shared testbed."""
    home = kept_home() or HOME
    testbed = shared_testbed(home)
    if command == "down":
        testbed.down()
    else:
        testbed.up()
        print(f"To use it in tests: export {HOME_VARIABLE}={home}")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
