"""Extra flags of an endpoint picker, as the annotation `modelplane.ai/epp-extra-flags` of a ModelDeployment writes them.

The picker's queue score reads the metric names of vLLM; other engines need its metric-name flags. So they are set per deployment.
"""

import re
from collections.abc import Iterable, Iterator

from api_types import labels

# What a picker is turned to, where it listens, and by whom it may be read: whatever the settings are. Names of metrics, and how it weighs
# them, are left to whoever knows the engine.
PLATFORM_FLAGS = frozenset(
    {
        "cert-path",
        "config-file",
        "config-text",
        "enable-cert-reload",
        "enable-plugin-state-debug",
        "enable-pprof",
        "endpoint-selector",
        "endpoint-target-ports",
        "grpc-health-port",
        "grpc-port",
        "ha-enable-leader-election",
        "kubeconfig",
        "metrics-cert-dir",
        "metrics-client-ca-file",
        "metrics-endpoint-auth",
        "metrics-port",
        "pool-group",
        "pool-name",
        "pool-namespace",
        "secure-serving",
        "tracing",
        "zap-encoder",
    }
)
_FLAG = re.compile(r"[a-z][a-z0-9-]*")


def parse_picker_flags(text: str) -> dict[str, str]:
    """Read `name=value` pairs, separated by commas or line ends; a name alone means `true`. Raises ValueError with every bad name."""
    pairs = [entry.strip().lstrip("-").partition("=") for entry in re.split(r"[,\n]", text) if entry.strip()]
    wrong = [name.strip() for name, _, _ in pairs if not _FLAG.fullmatch(name.strip())]
    if wrong:
        raise ValueError(f"{', '.join(map(repr, wrong))}: a flag is written as name=value, its name in a-z, 0-9 and '-'")
    return {name.strip(): value.strip() if equals else "true" for name, equals, value in pairs}


def platform_flag_problems(names: Iterable[str]) -> Iterator[str]:
    """Refuse flags that a deployment cannot give, by their names with or without leading `-`."""
    for name in sorted({name.lstrip("-") for name in names} & PLATFORM_FLAGS):
        yield f"flag --{name} is set by the platform; remove it from {labels.PICKER_FLAGS}"
