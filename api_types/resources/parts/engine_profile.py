"""How an engine listens, reports its health, and is configured."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.resources.parts.base_types import Flag, ResourceModel, Whole

ProfileName = Literal[
    "vLLM",
    "SGLang",
    "TensorRT-LLM",
    "NIM",
    "Triton",
    "TGI",
    "llama.cpp",
    "Ollama",
    "TEI",
    "Infinity",
    "Custom",
]
Port = Annotated[Whole, Field(ge=1, le=65535)]
HttpPath = Annotated[str, Field(max_length=256, pattern=r"^/[!-~]*$")]
OptionalPath = Annotated[str, Field(max_length=256, pattern=r"^(/[!-~]*)?$")]
FlagName = Annotated[
    str, Field(max_length=64, pattern=r"^-{1,2}[A-Za-z][-_A-Za-z0-9]*$")
]
OptionalFlag = Annotated[
    str, Field(max_length=64, pattern=r"^(-{1,2}[A-Za-z][-_A-Za-z0-9]*)?$")
]


class ProfileOverrides(ResourceModel):
    """The profile of an engine; each field overrides that of the profile it names."""

    name: ProfileName | None = None
    """Absent: the profile that fits the command, or else the image."""
    port: Port | None = None
    """Port of requests; absent means 8000. The engine must listen on it."""
    health_path: HttpPath | None = None
    """Path of all probes."""
    metrics_path: OptionalPath | None = None
    """Path of the Prometheus metrics; empty means that there are none."""
    metrics_port: Port | None = None
    """Port of the metrics; absent means the port of requests, or that of the profile."""
    loopback: Flag | None = None
    """True if the engine listens on the loopback address unless a flag changes it."""
    model_flag: OptionalFlag | None = None
    """Flag that is added with the path of the cache; empty means none.

    It is added to args of a container without a command.
    """
    served_name_flag: OptionalFlag | None = None
    """Flag with the model's name in requests; empty means none."""
    adapters: Flag | None = None
    """True if the engine can serve LoRA adapters."""
    finishes_requests: Flag | None = None
    """True if the engine finishes running requests after SIGTERM."""
    parallel_flags: (
        Annotated[tuple[FlagName, ...], Field(min_length=1, max_length=8)] | None
    ) = None
    """Flags whose product is the number of devices of a pod or group."""
    leader_port: Annotated[Whole, Field(ge=0, le=65535)] | None = None
    """Port of the Leader for which Workers wait before they start; 0 means its name alone.

    Absent means the port next to the Leader's address in the flags of the Worker.
    """
