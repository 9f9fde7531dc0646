"""Flags are read out of any command line, in a bounded time."""

import pytest

from activities.render.engines import flags
from activities.render.engines.spec import STANDALONE, Member


def a_member(*command: str) -> Member:
    return Member(STANDALONE, "h100", 1, "acme/vllm:1", command, (), (), (), {}, {}, ())


def test_scripts_take_no_time_that_others_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A character of a script takes a microsecond of a worker to be read with its quotes, and a replica is rendered again and again."""
    sizes: list[int] = []

    def split(text: str, **how: bool) -> list[str]:
        sizes.append(len(text))
        assert how == {"comments": True}
        return text.split()

    monkeypatch.setattr("shlex.split", split)
    found = flags.find_flag(a_member("sh", "-c", "vllm serve --port 9000 " + "x" * 200_000), "--port")
    assert (found.value if found else "", sizes) == ("9000", [])
    assert flags.find_flag(a_member("sh", *["-c", "vllm"] * 10_000), "--port") is None
    assert len(sizes) == 4
