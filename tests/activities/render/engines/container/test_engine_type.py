"""The label `llm-d.ai/engine-type`, by which the endpoint picker selects metric names.

The picker reads a pod without the label as vLLM.
"""

from typing import Any

import pytest

from tests.activities.render.builders import (
    a_gang,
    a_member,
    an_engine,
    pod,
    render,
    render_pair,
)

LABEL = "llm-d.ai/engine-type"


def label_of(**member: Any) -> str | None:
    found: str | None = pod(render(an_engine("main", a_member(**member))))["metadata"][
        "labels"
    ].get(LABEL)
    return found


RECOGNISED: list[tuple[str, dict[str, Any], str | None]] = [
    ("the image of vLLM", {"image": "vllm/vllm-openai:v0.14.1"}, "vllm"),
    (
        "the image of SGLang",
        {"image": "docker.example:5000/lmsysorg/sglang@sha256:00"},
        "sglang",
    ),
    (
        "the image of TensorRT-LLM",
        {"image": "nvcr.io/nvidia/tensorrt-llm/release:1.3.0"},
        "trtllm-serve",
    ),
    (
        "a folder called like an engine, further up",
        {"image": "r.example/vllm/images/llama-cpp"},
        None,
    ),
    ("a tag called like an engine", {"image": "nvidia/tritonserver:25.01-vllm"}, None),
    (
        "a module",
        {"image": "acme/x", "command": ["python3", "-m", "sglang.launch_server"]},
        "sglang",
    ),
    (
        "a program",
        {"image": "acme/x", "command": ["/usr/local/bin/vllm", "serve"]},
        "vllm",
    ),
    (
        "shell text",
        {"image": "acme/x", "command": ["sh", "-c", "exec trtllm-serve m --port 8000"]},
        "trtllm-serve",
    ),
    (
        "the command before the image",
        {
            "image": "vllm/vllm-openai",
            "command": ["python", "-m", "sglang.launch_server"],
        },
        "sglang",
    ),
    ("a model called like an engine", {"image": "acme/x", "args": ["vllm"]}, None),
    (
        "a path called like an engine",
        {"image": "acme/x", "command": ["serve", "/models/vllm"]},
        None,
    ),
    ("another engine", {"image": "ghcr.io/ggml-org/llama.cpp:server"}, None),
]


@pytest.mark.parametrize(
    ("member", "engine"),
    [case[1:] for case in RECOGNISED],
    ids=[case[0] for case in RECOGNISED],
)
def test_a_recognised_engine_is_labelled(
    member: dict[str, Any], engine: str | None
) -> None:
    assert label_of(**member) == engine


@pytest.mark.parametrize(
    ("image", "labels", "engine", "warned"),
    [
        (
            "vllm/vllm-openai",
            {LABEL: "triton-tensorrt-llm"},
            "triton-tensorrt-llm",
            False,
        ),
        (
            "acme/engine",
            {"inference.networking.k8s.io/engine-type": "sglang"},
            None,
            True,
        ),
        ("lmsysorg/sglang", {LABEL: "sglang"}, "sglang", True),
        ("lmsysorg/sglang", {LABEL: "vllm"}, "vllm", False),
        ("vllm/vllm-openai", {LABEL: ""}, "", False),
    ],
    ids=[
        "the label",
        "the older label, which the picker reads too",
        "what is recognised",
        "another engine than what is recognised",
        "an empty label",
    ],
)
def test_the_label_of_a_user_wins(
    image: str, labels: dict[str, str], engine: str | None, *, warned: bool
) -> None:
    rendered = render(an_engine("main", a_member(image=image, labels=labels)))
    assert pod(rendered)["metadata"]["labels"].get(LABEL) == engine
    assert (
        any("SGLang without --enable-metrics" in text for text in rendered.warnings)
        is warned
    )


def test_followers_have_none_as_the_picker_does_not_see_them() -> None:
    rendered = render(
        a_gang(
            leader={"image": "vllm/vllm-openai"}, worker={"image": "vllm/vllm-openai"}
        )
    )
    assert pod(rendered)["metadata"]["labels"][LABEL] == "vllm"
    assert "labels" not in pod(rendered, role="Worker")["metadata"]


@pytest.mark.slow
def test_both_engines_of_a_pair_have_one() -> None:
    rendered = render_pair()
    assert [
        pod(rendered, name)["metadata"]["labels"][LABEL] for name in ("alpha", "beta")
    ] == ["vllm", "vllm"]


@pytest.mark.parametrize(
    ("args", "warned"),
    [([], True), (["--enable-metrics"], False), (["--enable_metrics"], False)],
    ids=["no flag", "the flag", "underscores"],
)
def test_sglang_without_metrics_is_a_warning(args: list[str], *, warned: bool) -> None:
    rendered = render(
        an_engine("main", a_member(image="lmsysorg/sglang:v0.5.9", args=args))
    )
    said = (
        "engine main, member Standalone: SGLang without --enable-metrics has no metrics: "
        "the endpoint picker cannot see its load; add the flag to args"
    )
    assert rendered.warnings == ((said,) if warned else ())
