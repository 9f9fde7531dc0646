"""Profiles: how each known engine listens, reports its health, and is configured.

Each fact has its source: a document of the engine, and the version that was read. The
fields of `engines[].profile` override them one by one. docs/how-to/engines.md has the table.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from api_types.engines.flags import command_lines
from api_types.engines.program import EngineProgram
from api_types.limits import ENGINE_PORT

VLLM = "vLLM"
SGLANG = "SGLang"
TRT_LLM = "TensorRT-LLM"
NIM = "NIM"
TRITON = "Triton"
TGI = "TGI"
LLAMA_CPP = "llama.cpp"
OLLAMA = "Ollama"
TEI = "TEI"
INFINITY = "Infinity"
CUSTOM = "Custom"

HEALTH_PATH = "/health"
METRICS_PATH = "/metrics"
MODEL_FLAG = "--model"


@dataclass(frozen=True)
class EngineProfile:
    """The facts about an engine that Modelplane uses.

    Attributes:
        name: the name of the profile.
        port: the port to which requests are sent. The engine must listen on it.
        listens_on: the port on which the engine listens by default.
        health_path: the path of all probes.
        metrics_path: the path of the Prometheus metrics; empty without metrics.
        metrics_port: the port of the metrics; 0 for the port of requests.
        loopback: by default the engine listens on the loopback address alone.
        model_flag: the flag that is added with the path of a cache; empty for none.
        served_name_flag: the flag with the name of the model in requests.
        adapters: the engine can serve LoRA adapters.
        finishes_requests: the engine finishes running requests after SIGTERM.
        parallel_flags: flags whose product is the number of devices of a pod or group.
        leader_port: the port of the Leader for which Workers wait; 0 for its name alone,
            and None for the port in their flags.

    """

    name: str = CUSTOM
    port: int = ENGINE_PORT
    listens_on: int = ENGINE_PORT
    health_path: str = HEALTH_PATH
    metrics_path: str = METRICS_PATH
    metrics_port: int = 0
    loopback: bool = False
    model_flag: str = MODEL_FLAG
    served_name_flag: str = ""
    adapters: bool = True
    finishes_requests: bool = False
    parallel_flags: tuple[str, ...] = ()
    leader_port: int | None = None


CUSTOM_PROFILE = EngineProfile()


@dataclass(frozen=True)
class ProfileFact:
    """The value of a profile's field, and the document and version that it is from."""

    value: Any
    source: str


@dataclass(frozen=True)
class Listening:
    """The flags and variables that change where an engine listens.

    `image_port` and `image_loopback` apply to the official images, which set variables.
    `address` is a variable with host and port in one value.
    """

    port_flags: tuple[str, ...] = ("--port",)
    port_variable: str = ""
    host_flags: tuple[str, ...] = ("--host",)
    host_variable: str = ""
    address: str = ""
    images: tuple[str, ...] = ()
    image_port: int = 0
    image_loopback: bool | None = None


_VLLM_SERVE = "vLLM v0.14.1, cli/serve"
_VLLM_SERVER = "vLLM v0.14.1, serving/openai_compatible_server"
_SGLANG_ARGS = "SGLang v0.5.6, advanced_features/server_arguments"
_TRT_SERVE = "TensorRT-LLM 1.2, commands/trtllm-serve"
_NIM_API = "NIM for LLMs 2.0.1, reference/api-reference"
_NIM_ENV = "NIM for LLMs 2.0.1, reference/environment-variables"
_TRITON_DEPLOY = "Triton 25.10, getting_started/quickstart"
_TRITON_METRICS = "Triton 25.10, user_guide/metrics"
_TGI_LAUNCHER = "TGI v3.3.6, reference/launcher"
_LLAMA_SERVER = "llama.cpp b6900, server README"
_OLLAMA_FAQ = "Ollama v0.12, faq"
_OLLAMA_API = "Ollama v0.12, api"
_TEI_ARGS = "TEI v1.8, cli_arguments"
_TEI_API = "TEI v1.8, openapi.json"
_INFINITY_CLI = "Infinity 0.0.77, cli_v2"
_INFINITY_API = "Infinity 0.0.77, assets/openapi.json"

FACTS: Mapping[str, Mapping[str, ProfileFact]] = {
    VLLM: {
        "listens_on": ProfileFact(8000, _VLLM_SERVE),
        "health_path": ProfileFact("/health", _VLLM_SERVER),
        "metrics_path": ProfileFact("/metrics", "vLLM v0.14.1, usage/metrics"),
        "metrics_port": ProfileFact(0, "vLLM v0.14.1, usage/metrics"),
        "loopback": ProfileFact(value=False, source=_VLLM_SERVE),
        "model_flag": ProfileFact("--model", _VLLM_SERVE),
        "served_name_flag": ProfileFact("--served-model-name", _VLLM_SERVE),
        "adapters": ProfileFact(value=True, source="vLLM v0.14.1, features/lora"),
        "finishes_requests": ProfileFact(
            value=False, source="vLLM v0.14.1, vllm/entrypoints/launcher"
        ),
        "parallel_flags": ProfileFact(
            (
                "--tensor-parallel-size",
                "--pipeline-parallel-size",
                "--data-parallel-size",
            ),
            "vLLM v0.14.1, serving/parallelism_scaling",
        ),
    },
    SGLANG: {
        "listens_on": ProfileFact(30000, _SGLANG_ARGS),
        "health_path": ProfileFact("/health", "SGLang v0.5.6, basic_usage/native_api"),
        "metrics_path": ProfileFact(
            "/metrics", "SGLang v0.5.6, references/production_metrics"
        ),
        "metrics_port": ProfileFact(0, "SGLang v0.5.6, references/production_metrics"),
        "loopback": ProfileFact(value=True, source=_SGLANG_ARGS),
        "model_flag": ProfileFact("--model", _SGLANG_ARGS),
        "served_name_flag": ProfileFact("--served-model-name", _SGLANG_ARGS),
        "adapters": ProfileFact(
            value=True, source="SGLang v0.5.6, advanced_features/lora"
        ),
        "finishes_requests": ProfileFact(
            value=True,
            source="SGLang v0.5.6, srt/managers/tokenizer_manager",
        ),
        "parallel_flags": ProfileFact(
            (
                "--tensor-parallel-size",
                "--pipeline-parallel-size",
                "--data-parallel-size",
            ),
            _SGLANG_ARGS,
        ),
    },
    TRT_LLM: {
        "listens_on": ProfileFact(8000, _TRT_SERVE),
        "health_path": ProfileFact("/health", _TRT_SERVE),
        "metrics_path": ProfileFact(
            "/prometheus/metrics", "TensorRT-LLM 1.2, example serve/prometheus_metrics"
        ),
        "metrics_port": ProfileFact(
            0, "TensorRT-LLM 1.2, example serve/prometheus_metrics"
        ),
        "loopback": ProfileFact(value=True, source=_TRT_SERVE),
        "model_flag": ProfileFact("", _TRT_SERVE),
        "served_name_flag": ProfileFact("", _TRT_SERVE),
        "adapters": ProfileFact(value=True, source="TensorRT-LLM 1.2, features/lora"),
        "finishes_requests": ProfileFact(value=False, source=_TRT_SERVE),
        "parallel_flags": ProfileFact(("--tp_size", "--pp_size"), _TRT_SERVE),
    },
    NIM: {
        "listens_on": ProfileFact(8000, _NIM_ENV),
        "health_path": ProfileFact("/v1/health/ready", _NIM_API),
        "metrics_path": ProfileFact("/v1/metrics", _NIM_API),
        "metrics_port": ProfileFact(0, _NIM_API),
        "loopback": ProfileFact(value=False, source=_NIM_ENV),
        "model_flag": ProfileFact("", _NIM_ENV),
        "served_name_flag": ProfileFact("", _NIM_ENV),
        "adapters": ProfileFact(value=True, source=_NIM_ENV),
        "finishes_requests": ProfileFact(value=False, source=_NIM_API),
        "parallel_flags": ProfileFact((), _NIM_ENV),
    },
    TRITON: {
        "listens_on": ProfileFact(8000, _TRITON_DEPLOY),
        "health_path": ProfileFact("/v2/health/ready", _TRITON_DEPLOY),
        "metrics_path": ProfileFact("/metrics", _TRITON_METRICS),
        "metrics_port": ProfileFact(8002, _TRITON_METRICS),
        "loopback": ProfileFact(value=False, source=_TRITON_DEPLOY),
        "model_flag": ProfileFact("", "Triton 25.10, user_guide/model_repository"),
        "served_name_flag": ProfileFact(
            "", "Triton 25.10, user_guide/model_repository"
        ),
        "adapters": ProfileFact(
            value=False, source="Triton 25.10, user_guide/model_repository"
        ),
        "finishes_requests": ProfileFact(
            value=True, source="Triton 25.10, tritonserver --help"
        ),
        "parallel_flags": ProfileFact((), _TRITON_DEPLOY),
    },
    TGI: {
        "listens_on": ProfileFact(3000, _TGI_LAUNCHER),
        "health_path": ProfileFact("/health", "TGI v3.3.6, openapi.json"),
        "metrics_path": ProfileFact("/metrics", "TGI v3.3.6, reference/metrics"),
        "metrics_port": ProfileFact(0, "TGI v3.3.6, reference/metrics"),
        "loopback": ProfileFact(value=False, source=_TGI_LAUNCHER),
        "model_flag": ProfileFact("--model-id", _TGI_LAUNCHER),
        "served_name_flag": ProfileFact("", _TGI_LAUNCHER),
        "adapters": ProfileFact(value=True, source="TGI v3.3.6, conceptual/lora"),
        "finishes_requests": ProfileFact(
            value=True, source="TGI v3.3.6, router/src/server"
        ),
        "parallel_flags": ProfileFact(("--num-shard",), _TGI_LAUNCHER),
    },
    LLAMA_CPP: {
        "listens_on": ProfileFact(8080, _LLAMA_SERVER),
        "health_path": ProfileFact("/health", _LLAMA_SERVER),
        "metrics_path": ProfileFact("/metrics", _LLAMA_SERVER),
        "metrics_port": ProfileFact(0, _LLAMA_SERVER),
        "loopback": ProfileFact(value=True, source=_LLAMA_SERVER),
        "model_flag": ProfileFact("", _LLAMA_SERVER),
        "served_name_flag": ProfileFact("--alias", _LLAMA_SERVER),
        "adapters": ProfileFact(value=True, source=_LLAMA_SERVER),
        "finishes_requests": ProfileFact(value=False, source=_LLAMA_SERVER),
        "parallel_flags": ProfileFact((), _LLAMA_SERVER),
    },
    OLLAMA: {
        "listens_on": ProfileFact(11434, _OLLAMA_FAQ),
        "health_path": ProfileFact("/api/version", _OLLAMA_API),
        "metrics_path": ProfileFact("", _OLLAMA_API),
        "metrics_port": ProfileFact(0, _OLLAMA_API),
        "loopback": ProfileFact(value=True, source=_OLLAMA_FAQ),
        "model_flag": ProfileFact("", _OLLAMA_FAQ),
        "served_name_flag": ProfileFact("", _OLLAMA_API),
        "adapters": ProfileFact(value=False, source=_OLLAMA_API),
        "finishes_requests": ProfileFact(value=False, source=_OLLAMA_FAQ),
        "parallel_flags": ProfileFact((), _OLLAMA_FAQ),
    },
    TEI: {
        "listens_on": ProfileFact(3000, _TEI_ARGS),
        "health_path": ProfileFact("/health", _TEI_API),
        "metrics_path": ProfileFact("/metrics", _TEI_API),
        "metrics_port": ProfileFact(0, _TEI_API),
        "loopback": ProfileFact(value=False, source=_TEI_ARGS),
        "model_flag": ProfileFact("--model-id", _TEI_ARGS),
        "served_name_flag": ProfileFact("--served-model-name", _TEI_ARGS),
        "adapters": ProfileFact(value=False, source=_TEI_ARGS),
        "finishes_requests": ProfileFact(
            value=True, source="TEI v1.8, router/src/http/server"
        ),
        "parallel_flags": ProfileFact((), _TEI_ARGS),
    },
    INFINITY: {
        "listens_on": ProfileFact(7997, _INFINITY_CLI),
        "health_path": ProfileFact("/health", _INFINITY_API),
        "metrics_path": ProfileFact("/metrics", _INFINITY_API),
        "metrics_port": ProfileFact(0, _INFINITY_API),
        "loopback": ProfileFact(value=False, source=_INFINITY_CLI),
        "model_flag": ProfileFact("--model-id", _INFINITY_CLI),
        "served_name_flag": ProfileFact("--served-model-name", _INFINITY_CLI),
        "adapters": ProfileFact(value=False, source=_INFINITY_CLI),
        "finishes_requests": ProfileFact(value=False, source=_INFINITY_CLI),
        "parallel_flags": ProfileFact((), _INFINITY_CLI),
    },
}

LISTENING: Mapping[str, Listening] = {
    VLLM: Listening(images=("vllm/vllm-openai",)),
    SGLANG: Listening(images=("lmsysorg/sglang",)),
    TRT_LLM: Listening(images=("nvcr.io/nvidia/tensorrt-llm/release",)),
    NIM: Listening(port_flags=(), port_variable="NIM_SERVER_PORT", host_flags=()),
    TRITON: Listening(
        port_flags=("--http-port",),
        host_flags=("--http-address",),
        images=("nvcr.io/nvidia/tritonserver",),
    ),
    TGI: Listening(
        port_flags=("--port", "-p"),
        port_variable="PORT",
        host_flags=("--hostname",),
        images=("ghcr.io/huggingface/text-generation-inference",),
        image_port=80,
    ),
    LLAMA_CPP: Listening(
        port_variable="LLAMA_ARG_PORT",
        host_variable="LLAMA_ARG_HOST",
        images=("ghcr.io/ggml-org/llama.cpp", "ghcr.io/ggerganov/llama.cpp"),
        image_loopback=False,
    ),
    OLLAMA: Listening(
        port_flags=(),
        host_flags=(),
        address="OLLAMA_HOST",
        images=("ollama/ollama",),
        image_loopback=False,
    ),
    TEI: Listening(
        port_flags=("--port", "-p"),
        port_variable="PORT",
        host_flags=("--hostname",),
        images=("ghcr.io/huggingface/text-embeddings-inference",),
        image_port=80,
    ),
    INFINITY: Listening(
        port_variable="INFINITY_PORT",
        host_variable="INFINITY_HOST",
        images=("michaelf34/infinity",),
    ),
    CUSTOM: Listening(),
}

# The fields of `engines[].profile` on the wire, and the attributes that they override.
OVERRIDES: Mapping[str, str] = {
    "port": "port",
    "healthPath": "health_path",
    "metricsPath": "metrics_path",
    "metricsPort": "metrics_port",
    "loopback": "loopback",
    "modelFlag": "model_flag",
    "servedNameFlag": "served_name_flag",
    "adapters": "adapters",
    "finishesRequests": "finishes_requests",
    "parallelFlags": "parallel_flags",
    "leaderPort": "leader_port",
}

# A program, with or without its folder, or a module after `python -m`. The first word
# that matches decides.
_COMMANDS = (
    (VLLM, re.compile(r"(.*/bin/)?vllm(\..*)?")),
    (SGLANG, re.compile(r"(.*/bin/)?sglang(\..*)?")),
    (TRT_LLM, re.compile(r"(.*/bin/)?trtllm-serve")),
    (TRITON, re.compile(r"(.*/)?tritonserver")),
    (TGI, re.compile(r"(.*/)?text-generation-launcher")),
    (LLAMA_CPP, re.compile(r"(.*/)?llama-server")),
    (OLLAMA, re.compile(r"(.*/)?ollama")),
    (TEI, re.compile(r"(.*/)?text-embeddings-router")),
    (INFINITY, re.compile(r"(.*/)?infinity_emb")),
)
_IMAGES = (
    (SGLANG, "sglang"),
    (TRITON, "tritonserver"),
    (TRT_LLM, "tensorrt-llm"),
    (TRT_LLM, "trtllm"),
    (VLLM, "vllm"),
    (TGI, "text-generation-inference"),
    (TEI, "text-embeddings-inference"),
    (LLAMA_CPP, "llama.cpp"),
    (OLLAMA, "ollama"),
    (INFINITY, "michaelf34/infinity"),
)
_NIM_REGISTRY = "nvcr.io/nim/"


def inferred(program: EngineProgram) -> str:
    """Return the profile that fits the command, or else the image, of an engine."""
    return from_command(program) or _from_image(program)


def from_command(program: EngineProgram) -> str:
    """Return the profile that fits the command of an engine, or ""."""
    for place, words in command_lines(program):
        # Arguments contain names of models and files, which may include the name of an
        # engine.
        if place == "args":
            continue
        for word in words:
            for name, pattern in _COMMANDS:
                if pattern.fullmatch(word):
                    return name
    return ""


def _from_image(program: EngineProgram) -> str:
    image = repository(program.image)
    if image.startswith(_NIM_REGISTRY):
        return NIM
    # The last two parts, such as `lmsysorg/sglang`.
    image = "/".join(image.split("/")[-2:])
    return next((name for name, part in _IMAGES if part in image), CUSTOM)


def repository(image: str) -> str:
    """Return the repository of an image, without registry default, tag and digest."""
    folder, slash, name = image.lower().partition("@")[0].rpartition("/")
    return f"{folder}{slash}{name.partition(':')[0]}".removeprefix("docker.io/")


def profile_of(program: EngineProgram, given: Mapping[str, Any]) -> EngineProfile:
    """Return the profile of an engine.

    Args:
        program: the program of its serving member.
        given: `engines[].profile` on the wire. Its fields override the profile that it
            names, or else the profile that fits the program.

    """
    profile = named(str(given.get("name") or inferred(program)))
    overrides = {
        attribute: _value(given[field])
        for field, attribute in OVERRIDES.items()
        if given.get(field) is not None
    }
    return replace(profile, **overrides)


def named(name: str) -> EngineProfile:
    """Return the profile of this name, without overrides."""
    known = {field: fact.value for field, fact in FACTS.get(name, {}).items()}
    return EngineProfile(name=name, **known)


def _value(value: Any) -> Any:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return tuple(value) if is_list else value
