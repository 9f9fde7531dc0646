"""A testbed that does not come up in time is started again, and the summary says so."""

from typing import cast

import pytest

from testbed.running import Running
from testbed.testbed import Testbed
from testbed.waiting import StartFailed
from tests.environment.shared_testbed import STARTS_MAX, started
from tests.environment.summary import Summary

UP = cast(Running, object())


class Slow:
    """A testbed that comes up after some failed starts.

    Each failed start must be cleared away.
    """

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.left = False

    def up(self) -> Running:
        assert not self.left
        if self.failures:
            self.failures -= 1
            self.left = True
            raise StartFailed("etcd is not ready")
        return UP

    def down(self) -> None:
        self.left = False


class Counted:
    """The two counts of the summary."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.starts: list[float] = []

    def start_failed(self, reason: str) -> None:
        self.failed.append(reason)

    def started(self, seconds: float) -> None:
        self.starts.append(seconds)


def start(failures: int) -> tuple[Running, Counted]:
    counted = Counted()
    return started(cast(Testbed, Slow(failures)), cast(Summary, counted)), counted


def test_a_failed_start_is_repeated_and_counted() -> None:
    running, counted = start(STARTS_MAX - 1)
    assert running is UP
    assert counted.failed == ["etcd is not ready"] * (STARTS_MAX - 1)
    assert len(counted.starts) == 1


def test_the_last_failure_is_that_of_the_run() -> None:
    with pytest.raises(StartFailed, match="etcd"):
        start(STARTS_MAX)
