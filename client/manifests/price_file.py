"""Prices of machines in a file: region, then machine type, then the price per hour.

They take precedence over the list prices of `client/planning/list_prices.py`.
"""

from collections.abc import Mapping
from pathlib import Path

from api_types.prices import UNPRICED, read_price_milli
from client.manifests.documents import title_of
from client.manifests.yaml_file import read_yaml
from fleet_client.errors import Refused

Prices = Mapping[tuple[str, str], int]
"""Thousandths per hour, by region and machine type."""


def read_price_file(file: Path) -> Prices:
    """Read a price table. Raise `Refused` with all invalid entries."""
    problems: list[str] = []
    prices: dict[tuple[str, str], int] = {}
    for region, machines in read_yaml(file, "price").items():
        if not isinstance(machines, Mapping):
            problems.append(f"{region}: must be a mapping of machine types to prices")
            continue
        for machine, price in machines.items():
            milli = read_price_milli(str(price))
            if milli == UNPRICED:
                problems.append(
                    f"{region}.{machine}: {price!r} is not a price such as 1.25"
                )
            prices[str(region), str(machine)] = milli
    if problems:
        raise Refused(
            f"{title_of(str(file))} is not a usable price table",
            details=problems,
            next_step="fix these entries",
        )
    return prices
