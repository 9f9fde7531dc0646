"""The testbed that tests share: the built-in fleet without its control cluster, which few tests need.

python -m tests.environment.shared_testbed up      start it and leave it up; with MODELPLANE_TESTBED_HOME set, tests use it
python -m tests.environment.shared_testbed down    stop it
"""

import os
import sys
from pathlib import Path

from testbed.fleet.fleet_file import BUILT_IN, FleetFile
from testbed.testbed import Testbed

HOME_VARIABLE = "MODELPLANE_TESTBED_HOME"
HOME = Path(__file__).parents[2] / ".testbed"


def kept_home() -> Path | None:
    """The folder of a testbed that stays up after the tests, if the user names one."""
    named = os.environ.get(HOME_VARIABLE)
    return Path(named).resolve() if named else None


def shared_testbed(home: Path) -> Testbed:
    """Make the testbed of a folder; the fleet file lies where `modelplane up` finds it again."""
    fleet = home / "fleet.yaml"
    fleet.parent.mkdir(parents=True, exist_ok=True)
    fleet.write_text(f"{BUILT_IN.read_text()}\ncontrol: false\n")
    return Testbed(home, FleetFile.load(fleet))


def main(command: str) -> None:
    """Start or stop the testbed that stays up."""
    home = kept_home() or HOME
    testbed = shared_testbed(home)
    if command == "down":
        testbed.down()
    else:
        testbed.up()
        print(f"To use it in tests: export {HOME_VARIABLE}={home}")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
