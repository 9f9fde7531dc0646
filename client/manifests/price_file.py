"""Prices of machines from a file: region, then type of machine, then the price of an hour. This program has none of its own."""

from collections.abc import Mapping
from pathlib import Path

from api_types.prices import UNPRICED, read_price_milli
from client.errors import Refused
from client.manifests.documents import title_of
from client.manifests.yaml_file import read_yaml

Prices = Mapping[tuple[str, str], int]
"""Region and type of machine to thousandths per hour."""


def read_price_file(file: Path) -> Prices:
    """Read a price table. Raises `Refused` with every entry that is no price."""
    problems: list[str] = []
    prices: dict[tuple[str, str], int] = {}
    for region, machines in read_yaml(file, "price").items():
        if not isinstance(machines, Mapping):
            problems.append(f"{region}: must be a mapping of machine types to prices")
            continue
        for machine, price in machines.items():
            milli = read_price_milli(str(price))
            if milli == UNPRICED:
                problems.append(f"{region}.{machine}: {price!r} is no price, such as 1.25")
            prices[str(region), str(machine)] = milli
    if problems:
        raise Refused(f"{title_of(str(file))} is not a usable price table", details=problems, next_step="fix these entries")
    return prices
