"""What a node costs, as people write it: one annotation of an InferenceClass, read here and nowhere else.

Prices travel as whole thousandths of a node-hour, because a placement must not hang on how a machine rounds.
"""

import re
from collections.abc import Mapping

from api_types import labels

# Stands for a price that nobody told, as opposed to a node that costs nothing.
UNPRICED = -1

_DECIMALS = 3
_WRITTEN = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?")


def price_milli(annotations: Mapping[str, str]) -> int:
    """Read a class's price per node-hour in thousandths, rounded down; `UNPRICED` when there is none or it is no decimal number."""
    written = _WRITTEN.fullmatch(annotations.get(labels.PRICE_PER_NODE_HOUR, ""))
    if written is None:
        return UNPRICED
    whole, part = written[1], written[2] or ""
    return int(whole + part[:_DECIMALS].ljust(_DECIMALS, "0"))
