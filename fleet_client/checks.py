"""The checks of admission that need the scheduler: selectors, quantities and versions.

`api_types` must not import the scheduler, so callers pass these functions to admission.
"""

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


CHECKS = Checks(
    selector=check_selector,
    selector_cost=selector_cost,
    quantity=_quantity,
    version=_version,
)
