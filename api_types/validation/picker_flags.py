"""Extra flags of an endpoint picker in the annotation `modelplane.ai/epp-extra-flags`.

The annotation is on a ModelDeployment: the picker's queue score reads the metric names
of vLLM, so other engines need its metric-name flags.
"""

import re
from collections.abc import Iterable, Iterator

from api_types import labels

# Flags that determine the pool of a picker, its ports, and access to it. Users may not
# change them. Users may set the names and weights of metrics, which depend on the
# engine.
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
    """Parse `name=value` pairs, separated by commas or line ends.

    A name alone means `true`.

    Raises:
        ValueError: the message contains every invalid name.

    """
    pairs = [
        entry.strip().lstrip("-").partition("=")
        for entry in re.split(r"[,\n]", text)
        if entry.strip()
    ]
    wrong = [name.strip() for name, _, _ in pairs if not _FLAG.fullmatch(name.strip())]
    if wrong:
        names = ", ".join(map(repr, wrong))
        raise ValueError(
            f"{names}: a flag is written as name=value, its name in a-z, 0-9 and '-'"
        )
    flags = {}
    for name, equals, value in pairs:
        flags[name.strip()] = value.strip() if equals else "true"
    return flags


def platform_flag_problems(names: Iterable[str]) -> Iterator[str]:
    """Yield a problem for each flag that only the platform may set.

    The names may start with `-`.
    """
    for name in sorted({name.lstrip("-") for name in names} & PLATFORM_FLAGS):
        yield (
            f"flag --{name} is set by the platform; "
            f"remove it from {labels.PICKER_FLAGS}"
        )
