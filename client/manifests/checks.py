"""The checks that admission needs from the scheduler, which `api_types` may not import: selectors, quantities and versions."""

from api_types.text.quantity import parse_quantity
from api_types.validation.manifests import Checks
from scheduler import check_selector, parse_version, selector_cost


def _quantity(text: str) -> str | None:
    try:
        parse_quantity(text)
    except ValueError as error:
        return str(error)
    return None


def _version(text: str) -> str | None:
    try:
        parse_version(text)
    except ValueError as error:
        return str(error)
    return None


CHECKS = Checks(selector=check_selector, selector_cost=selector_cost, quantity=_quantity, version=_version)
