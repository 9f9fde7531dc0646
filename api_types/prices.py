"""The price of a node, from an annotation of an InferenceClass or a price table.

Prices are sent as whole thousandths per node-hour, because a placement must not depend
on the rounding of a machine.
"""

import re
from collections.abc import Mapping

from api_types import labels

# The price of a node is unknown, which differs from a node that costs nothing.
UNPRICED = -1

_DECIMALS = 3
_WRITTEN = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?")


def price_milli(annotations: Mapping[str, str]) -> int:
    """Return a class's price per node-hour in thousandths, rounded down.

    It is `UNPRICED` if the annotation is missing or not a decimal number.
    """
    return read_price_milli(annotations.get(labels.PRICE_PER_NODE_HOUR, ""))


def read_price_milli(text: str) -> int:
    """Return a price in thousandths, rounded down; `UNPRICED` if it is not decimal."""
    written = _WRITTEN.fullmatch(text)
    if written is None:
        return UNPRICED
    whole, part = written[1], written[2] or ""
    return int(whole + part[:_DECIMALS].ljust(_DECIMALS, "0"))
