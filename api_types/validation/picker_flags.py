"""Extra flags of an endpoint picker, as the annotation `modelplane.ai/epp-extra-flags` of a ModelDeployment writes them.

The picker's queue score reads the metric names of vLLM; other engines need its metric-name flags. So they are set per deployment.
"""

import re

_FLAG = re.compile(r"[a-z][a-z0-9-]*")


def parse_picker_flags(text: str) -> dict[str, str]:
    """Read `name=value` pairs, separated by commas or line ends; a name alone means `true`. Raises ValueError with every bad name."""
    pairs = [entry.strip().lstrip("-").partition("=") for entry in re.split(r"[,\n]", text) if entry.strip()]
    wrong = [name.strip() for name, _, _ in pairs if not _FLAG.fullmatch(name.strip())]
    if wrong:
        raise ValueError(f"{', '.join(map(repr, wrong))}: a flag is written as name=value, its name in a-z, 0-9 and '-'")
    return {name.strip(): value.strip() if equals else "true" for name, equals, value in pairs}
