"""The price of a node: an annotation of an InferenceClass, or an entry of a price table, parsed here and nowhere else.

Prices are sent as whole thousandths per node-hour, because a placement must not depend on how a machine rounds.
"""

import re
from collections.abc import Mapping

from api_types import labels

# The price of a node is not known, as opposed to a node that costs nothing.
UNPRICED = -1

_DECIMALS = 3
_WRITTEN = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?")


def price_milli(annotations: Mapping[str, str]) -> int:
    """Read a class's price per node-hour in thousandths, rounded down; `UNPRICED` when there is none or it is no decimal number."""
    return read_price_milli(annotations.get(labels.PRICE_PER_NODE_HOUR, ""))


def read_price_milli(text: str) -> int:
    """Read a price in thousandths, rounded down; `UNPRICED` when the text is no decimal number."""
    written = _WRITTEN.fullmatch(text)
    if written is None:
        return UNPRICED
    whole, part = written[1], written[2] or ""
    return int(whole + part[:_DECIMALS].ljust(_DECIMALS, "0"))
