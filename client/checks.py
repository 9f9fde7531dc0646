"""What admission needs from the scheduler: whether a selector, a quantity or a version can be read. `api_types` may not ask it itself."""

from api_types.manifests import Checks
from scheduler.cel import check_selector
from scheduler.quantity import parse_quantity
from scheduler.semver import parse_version


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


CHECKS = Checks(selector=check_selector, quantity=_quantity, version=_version)
