"""Flags are read from any command line in a bounded time."""

import pytest

from activities.render.engines.spec import STANDALONE, MemberSpec
from api_types.engines import flags


def a_member(*command: str) -> MemberSpec:
    return MemberSpec(
        STANDALONE, "h100", 1, "acme/vllm:1", command, (), (), (), {}, {}, ()
    )


@pytest.mark.parametrize(
    ("command", "value"),
    [
        pytest.param(
            ["bash", "-c", "--", "x --port 1"],
            None,
            id="another word than the script",
        ),
        pytest.param(
            ["bash", "-ceu", "x --port 1"], "1", id="c first of several options"
        ),
        pytest.param(["bash", "-c", "-e", "x --port 1"], "1", id="an option behind c"),
        pytest.param(
            ["bash", "-euo", "pipefail", "-c", "x --port 1"],
            "1",
            id="an option with a name in front",
        ),
        pytest.param(
            ["bash", "-ceuo", "pipefail", "x --port 1"],
            "1",
            id="an option with a name among them",
        ),
        pytest.param(
            ["bash", "+o", "posix", "-lc", "x --port 1"],
            "1",
            id="an option that is turned off",
        ),
        pytest.param(
            ["bash", "--rcfile", "f", "-c", "x --port 1"],
            "1",
            id="a long option with a file",
        ),
        pytest.param(
            ["bash", "-e", "run.sh", "-c", "x --port 1"],
            None,
            id="an argument of a script in a file",
        ),
        pytest.param(
            ["tini", "--", "/bin/bash", "-c", "x --port 1"],
            "1",
            id="behind another program",
        ),
        pytest.param(["bash", "-c"], None, id="no script"),
        pytest.param(["bash", "-o"], None, id="no name"),
    ],
)
def test_the_script_of_a_shell_is_read(command: list[str], value: str | None) -> None:
    found = flags.find_flag(a_member(*command), "--port")
    assert (found and found.value) == value


@pytest.mark.parametrize(
    ("command", "value"),
    [
        (["vllm", "--port", "8001", "--port=8000"], "8000"),
        (["sh", "-c", "vllm --port=8001 --port 8000"], "8000"),
        (["vllm", "--port=8001", "--other", "--port"], ""),
        (
            ["sh", "-c", "vllm --port 8001 --port 8200 & proxy --port=8000; wait"],
            "8200",
        ),
    ],
    ids=[
        "in words",
        "in a script",
        "without a value",
        "of the first program that has it",
    ],
)
def test_of_a_flag_that_is_given_twice_the_last_one_counts(
    command: list[str], value: str
) -> None:
    found = flags.find_flag(a_member(*command), "--port")
    assert found is not None
    assert found.value == value


def test_underscores_and_hyphens_are_one_spelling() -> None:
    """vLLM accepts both spellings, also for nested fields with an underscore."""
    member = a_member("vllm", "--kv_transfer_config.kv_connector=Nixl", "-a_b", "1")
    assert flags.find_flag(member, "--kv-transfer-config.kv_connector") == flags.Flag(
        "--kv_transfer_config.kv_connector", "Nixl", "command"
    )
    assert flags.find_flag(member, "-a-b") is None


def test_a_long_script_is_read_in_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading takes a microsecond per character, and replicas are rendered often."""
    sizes: list[int] = []

    def split(text: str, **how: bool) -> list[str]:
        sizes.append(len(text))
        assert how == {"comments": True}
        return text.split()

    monkeypatch.setattr("shlex.split", split)
    found = flags.find_flag(
        a_member("sh", "-c", "vllm serve --port 9000 " + "x" * 200_000), "--port"
    )
    assert (found.value if found else "", sizes) == ("9000", [])
    assert flags.find_flag(a_member(*["sh", "-c", "vllm"] * 10_000), "--port") is None
    assert len(sizes) == 4
