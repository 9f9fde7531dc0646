"""Profiles are inferred from command and image, and overridden field by field."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from api_types.engines import profiles
from api_types.engines.profiles import FACTS, LISTENING, OVERRIDES, named, profile_of
from api_types.engines.program import ContainerProgram
from api_types.resources.parts.engine_profile import ProfileName, ProfileOverrides

INFERRED = [
    ("vllm/vllm-openai:v0.14.1", (), "vLLM"),
    ("acme/engine", ("python3", "-m", "sglang.launch_server"), "SGLang"),
    ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0", (), "TensorRT-LLM"),
    ("nvcr.io/nim/meta/llama-3.1-8b-instruct:2.0.1", (), "NIM"),
    ("nvcr.io/nvidia/tritonserver:25.10-vllm-python-py3", (), "Triton"),
    ("acme/engine", ("/opt/tritonserver/bin/tritonserver",), "Triton"),
    ("ghcr.io/huggingface/text-generation-inference:3.3.6", (), "TGI"),
    ("ghcr.io/ggml-org/llama.cpp:server", (), "llama.cpp"),
    ("acme/engine", ("sh", "-c", "exec /app/llama-server -m x"), "llama.cpp"),
    ("ollama/ollama", (), "Ollama"),
    ("ghcr.io/huggingface/text-embeddings-inference:1.8", (), "TEI"),
    ("michaelf34/infinity:0.0.77", (), "Infinity"),
    ("acme/engine", ("/start.sh",), "Custom"),
]


@pytest.mark.parametrize(("image", "command", "name"), INFERRED)
def test_a_profile_is_inferred_from_command_and_image(
    image: str, command: tuple[str, ...], name: str
) -> None:
    assert profile_of(ContainerProgram(image, command), {}) == named(name)


def test_a_named_profile_replaces_the_inferred_one() -> None:
    program = ContainerProgram("vllm/vllm-openai")
    assert profile_of(program, {"name": "TGI"}) == named("TGI")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("port", 9000),
        ("healthPath", "/up"),
        ("metricsPath", ""),
        ("metricsPort", 9001),
        ("loopback", True),
        ("modelFlag", ""),
        ("servedNameFlag", "--name"),
        ("adapters", False),
        ("finishesRequests", True),
        ("parallelFlags", ["--gpus"]),
        ("leaderPort", 0),
    ],
)
def test_one_field_is_overridden_alone(field: str, value: Any) -> None:
    given = ProfileOverrides.model_validate({field: value}).wire()
    expected: Any = tuple(value) if isinstance(value, list) else value
    overridden: dict[str, Any] = {OVERRIDES[field]: expected}
    assert profile_of(ContainerProgram("vllm/vllm-openai"), given) == replace(
        named("vLLM"), **overridden
    )


def test_every_profile_states_every_field_with_its_document_and_version() -> None:
    assert (*FACTS, profiles.CUSTOM) == get_args(ProfileName)
    assert set(LISTENING) == {*FACTS, profiles.CUSTOM}
    wanted = ({*OVERRIDES.values()} - {"port", "leader_port"}) | {"listens_on"}
    for name, facts in FACTS.items():
        assert set(facts) == wanted, name
        for field, fact in facts.items():
            document, _, place = fact.source.partition(", ")
            assert any(digit in document for digit in "0123456789"), (name, field)
            assert place, (name, field)


def test_every_override_is_a_field_of_the_resource() -> None:
    wire = {
        field.alias or name for name, field in ProfileOverrides.model_fields.items()
    }
    assert wire == {"name", *OVERRIDES}
