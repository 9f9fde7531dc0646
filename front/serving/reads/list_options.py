"""Validates the parameters of lists and watches with the rules of Kubernetes.

https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
"""

import asyncio
from collections.abc import Mapping

from front.serving import errors
from front.store.projection import Projection

OPTIONS = "ListOptions"
EXACT, NOT_OLDER = "Exact", "NotOlderThan"
INITIAL, MATCH, VERSION = "sendInitialEvents", "resourceVersionMatch", "resourceVersion"
WAIT_SECONDS = 3.0
"""How long a read waits for a version that this front has not seen yet."""
_POLL_SECONDS = 0.05
_DIGITS_MAX = 19


def is_set(parameters: Mapping[str, str], name: str) -> bool:
    """Return a boolean parameter: every value but `false` and `0` is true."""
    value = parameters.get(name)
    return value is not None and value.lower() not in ("false", "0")


def check(parameters: Mapping[str, str], *, watch: bool) -> None:
    """Raise `RejectedRequest` (422) for parameters that contradict each other."""
    found = _of_watch(parameters) if watch else _of_list(parameters)
    if found:
        raise errors.invalid_options(OPTIONS, found)


def _of_list(parameters: Mapping[str, str]) -> list[errors.FieldProblem]:
    match, found = parameters.get(MATCH), []
    if match:
        if not parameters.get(VERSION):
            found.append(
                _forbidden(MATCH, f"{MATCH} is forbidden unless {VERSION} is provided")
            )
        found += _beside_token(parameters)
        if match not in (EXACT, NOT_OLDER):
            found.append(_unsupported(match, f'"{EXACT}", "{NOT_OLDER}", ""'))
        if match == EXACT and parameters.get(VERSION) == "0":
            found.append(
                _forbidden(MATCH, f'{MATCH} "exact" is forbidden for {VERSION} "0"')
            )
    if INITIAL in parameters:
        found.append(_forbidden(INITIAL, f"{INITIAL} is forbidden for list"))
    return found


def _of_watch(parameters: Mapping[str, str]) -> list[errors.FieldProblem]:
    match, found = parameters.get(MATCH), []
    if INITIAL in parameters and match != NOT_OLDER:
        found.append(
            _forbidden(MATCH, f"{INITIAL} requires setting {MATCH} to {NOT_OLDER}")
        )
    if match:
        if INITIAL not in parameters:
            about = f"{MATCH} is forbidden for watch unless {INITIAL} is provided"
            found.append(_forbidden(MATCH, about))
        if match != NOT_OLDER:
            found.append(_unsupported(match, f'"{NOT_OLDER}"'))
        found += _beside_token(parameters)
    return found


def _beside_token(parameters: Mapping[str, str]) -> list[errors.FieldProblem]:
    if not parameters.get("continue"):
        return []
    return [_forbidden(MATCH, f"{MATCH} is forbidden when continue is provided")]


def _forbidden(field: str, about: str) -> errors.FieldProblem:
    return errors.FieldProblem(field, "FieldValueForbidden", f"Forbidden: {about}")


def _unsupported(value: str, supported: str) -> errors.FieldProblem:
    about = f'Unsupported value: "{value[:64]}": supported values: {supported}'
    return errors.FieldProblem(MATCH, "FieldValueNotSupported", about)


def integer(parameters: Mapping[str, str], name: str) -> int:
    """Parse an integer parameter; 0 if it is missing. Raises `RejectedRequest`."""
    text = parameters.get(name, "0")
    digits = text[1:] if text.startswith(("-", "+")) else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < _DIGITS_MAX):
        raise errors.bad_request(f"{name}: {text[:64]!r} is not an integer")
    return int(text)


def version(parameters: Mapping[str, str]) -> int:
    """Parse the resource version of a read; 0 if it is missing.

    Raises `RejectedRequest`.
    """
    text = parameters.get(VERSION) or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise errors.bad_request(
            f"invalid resource version: {VERSION}: Invalid value: {text[:64]!r}: "
            "it is not a non-negative integer"
        )
    return int(text)


async def until_known(projection: Projection, wanted: int) -> None:
    """Wait until this front has seen a version, or raise `RejectedRequest` (504)."""
    left = WAIT_SECONDS
    while projection.high < wanted:
        if left <= 0:
            raise errors.too_large_version(wanted, projection.high)
        left -= _POLL_SECONDS
        await asyncio.sleep(_POLL_SECONDS)
