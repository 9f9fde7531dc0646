"""The images whose containers run a real program, instead of being simulated."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ENVOY, ENVOY_GATEWAY = "envoy", "envoy-gateway"
PICKER, EXTENSION = "endpoint-picker", "inference-extension"
PROGRAMS = {
    "envoyproxy/envoy": ENVOY,
    "envoyproxy/gateway": ENVOY_GATEWAY,
    # Envoy Gateway runs its shutdown manager from this image, unless a release was
    # stamped into the program.
    "envoyproxy/gateway-dev": ENVOY_GATEWAY,
    "envoyproxy/ai-gateway-controller": EXTENSION,
    "llm-d/llm-d-router-endpoint-picker": PICKER,
}
"""The program of each image, by its name without registry and tag."""
_PATTERN = "(^|/)(" + "|".join(PROGRAMS) + ")[:@]"

EXITED = "testbed.modelplane.ai/exited"
"""An annotation of a pod of a Job: "true" after its program has ended with success."""

# Whether all containers of a pod run real programs, in the language of jq.
IS_REAL = f'all(.spec.containers[].image; test("{_PATTERN}"))'


def program_of(image: str) -> str | None:
    """Return the program of an image, or None if its containers are simulated."""
    found = re.search(_PATTERN, image)
    return PROGRAMS[found[2]] if found else None


def is_real(pod: Mapping[str, Any]) -> bool:
    """Return whether all containers of a pod run real programs."""
    containers = pod["spec"]["containers"]
    return all(program_of(each.get("image", "")) for each in containers)


def installed(programs: Mapping[str, Path]) -> dict[str, str]:
    """Return the path of each program that containers run."""
    wanted: Iterable[str] = sorted(set(PROGRAMS.values()))
    return {name: str(programs[name]) for name in wanted}
