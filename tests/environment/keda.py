"""When tests of KEDA run: it is built where a user asks for it, and used wherever it was built."""

import os

import pytest

from testbed.programs.install import cached
from tests.environment.summary import Summary

VARIABLE = "MODELPLANE_TEST_KEDA"
MARK = "keda"


def leave_out_unless_there(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the tests of KEDA out of a run that would have to build it, and have the run say so at its end."""
    of_keda = [item for item in items if item.get_closest_marker(MARK)]
    if not of_keda or os.environ.get(VARIABLE) == "1" or all(path.is_file() for path in cached("keda")):
        return
    items[:] = [item for item in items if item not in of_keda]
    Summary.of(config).without("KEDA", len(of_keda), f"`make keda` builds it once, in about ten minutes, and so does {VARIABLE}=1")
