"""Flags of data-parallel ranks agree with `dataParallel`, in each shape of llm-d."""

from typing import Any

import pytest

from tests.api_types.builders import merged
from tests.api_types.validation.test_engine_programs import a_member, judged

SGLANG = "lmsysorg/sglang:v0.5.6"


def wide(
    shape: str | None,
    leader: list[str],
    worker: list[str],
    size: int = 8,
    **container: Any,
) -> tuple[str, str]:
    parallel = {"size": size} | ({"loadBalancing": shape} if shape else {})
    follower = a_member(role="Worker", args=worker, **container)
    return judged(
        a_member(role="Leader", args=leader, **container),
        merged(follower, {"worker": {"nodes": 1}}),
        dataParallel=parallel,
    )


HYBRID = ["--data-parallel-size=16", "--data-parallel-size-local=8"]
CASES: list[tuple[str, str | None, list[str], list[str], str, str]] = [
    (
        "hybrid",
        "Hybrid",
        [*HYBRID, "--data-parallel-hybrid-lb"],
        [*HYBRID, "--data-parallel-hybrid-lb", "--data-parallel-start-rank=8"],
        "ok",
        "",
    ),
    (
        "hybrid flags without the field",
        None,
        [*HYBRID, "--data-parallel-hybrid-lb"],
        [*HYBRID, "--data-parallel-hybrid-lb"],
        "warning",
        "set dataParallel.loadBalancing: Hybrid",
    ),
    (
        "a headless follower that should serve",
        "Hybrid",
        [*HYBRID, "--data-parallel-hybrid-lb"],
        [*HYBRID, "--headless"],
        "refused",
        "members[1]",
    ),
    ("internal", "Internal", HYBRID, [*HYBRID, "--headless"], "ok", ""),
    (
        "one server without the field",
        None,
        HYBRID,
        [*HYBRID, "--headless"],
        "warning",
        "set dataParallel.loadBalancing: Internal",
    ),
    (
        "external",
        "External",
        ["--data-parallel-size=16", "--data-parallel-external-lb"],
        ["--data-parallel-size=16", "--data-parallel-external-lb"],
        "ok",
        "",
    ),
    (
        "another total",
        "Internal",
        ["--data-parallel-size=32", "--data-parallel-size-local=8"],
        ["--headless"],
        "refused",
        "2 pods with 8 ranks each; set it to 16",
    ),
    (
        "another number of local ranks",
        "Internal",
        ["--data-parallel-size=16", "--data-parallel-size-local=4"],
        ["--headless"],
        "refused",
        "--data-parallel-size-local is 4",
    ),
]


@pytest.mark.parametrize(
    ("shape", "leader", "worker", "found", "text"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_flags_of_vllm_fit_the_shape(
    shape: str | None, leader: list[str], worker: list[str], found: str, text: str
) -> None:
    verdict, shown = wide(shape, leader, worker)
    assert verdict == found, shown
    assert text in shown


@pytest.mark.parametrize(
    ("shape", "ranks", "found"),
    [("Internal", 16, "ok"), ("Internal", 8, "refused"), ("Hybrid", 16, "refused")],
)
def test_followers_of_sglang_answer_no_requests(
    shape: str, ranks: int, found: str
) -> None:
    args = [
        "--host=0.0.0.0",
        "--port=8000",
        "--tp-size=16",
        f"--dp-size={ranks}",
        "--enable-dp-attention",
        "--nnodes=2",
        "--enable-metrics",
    ]
    program = ["python3", "-m", "sglang.launch_server"]
    verdict, shown = wide(shape, args, args, image=SGLANG, command=program)
    assert verdict == found, shown
