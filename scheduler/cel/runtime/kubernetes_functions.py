"""Functions that Kubernetes adds to CEL: quantities and semantic versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from api_types.text.quantity import DeclinedQuantity
from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.amounts import CelQuantity, amount_of_int, parse_amount
from scheduler.cel.runtime.values import INT64_MAX, UINT64_MAX, no_overload
from scheduler.kubernetes.semver import SemanticVersion, parse_version

Function = Callable[..., Any]


def _quantity(text: Any) -> Any:
    if type(text) is not str:
        return no_overload(text)
    try:
        return parse_amount(text)
    except ValueError as error:
        return EvalError(str(error))


def _semver(text: Any, normalise: Any = False) -> Any:
    if type(text) is not str or type(normalise) is not bool:
        return no_overload(text, normalise)
    try:
        return parse_version(text, normalise=normalise)
    except ValueError as error:
        return EvalError(str(error))


def _is_quantity(text: Any) -> Any:
    if type(text) is not str:
        return no_overload(text)
    try:
        parse_amount(text)
    except DeclinedQuantity as declined:
        # Kubernetes accepts it. If this returned false, a selector could be true here
        # and false in Kubernetes. An error prevents that.
        return EvalError(str(declined))
    except ValueError:
        return False
    return True


def _is_semver(text: Any, normalise: Any = False) -> Any:
    if type(text) is not str or type(normalise) is not bool:
        return no_overload(text, normalise)
    return not isinstance(_semver(text, normalise), EvalError)


def _of_amount(answer: Callable[[CelQuantity], Any]) -> Function:
    def ask(amount: Any) -> Any:
        return answer(amount) if type(amount) is CelQuantity else no_overload(amount)

    return ask


def _as_integer(amount: CelQuantity) -> Any:
    value = amount.as_int64()
    return EvalError("cannot convert value to integer") if value is None else value


def _plus(sign: int) -> Function:
    def total(amount: Any, other: Any) -> Any:
        if type(other) is int:
            other = amount_of_int(other)
        if type(amount) is not CelQuantity or type(other) is not CelQuantity:
            return no_overload(amount, other)
        return amount.plus(other, sign)

    return total


def _rank(accept: Callable[[int], Any]) -> Function:
    """Compare two quantities or two versions."""

    def rank(a: Any, b: Any) -> Any:
        if type(a) is CelQuantity and type(b) is CelQuantity:
            return accept(a.rank(b))
        if type(a) is SemanticVersion and type(b) is SemanticVersion:
            return accept((a > b) - (a < b))
        return no_overload(a, b)

    return rank


def _of_version(answer: Callable[[SemanticVersion], int]) -> Function:
    def ask(version: Any) -> Any:
        if type(version) is not SemanticVersion:
            return no_overload(version)
        number = answer(version)
        # Kubernetes reads the 64 unsigned bits as a signed number.
        return number - (UINT64_MAX + 1) if number > INT64_MAX else number

    return ask


IMPLEMENTATIONS: dict[str, Function] = {
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "sign": _of_amount(lambda amount: (amount.nano > 0) - (amount.nano < 0)),
    "isInteger": _of_amount(lambda amount: amount.as_int64() is not None),
    "asInteger": _of_amount(_as_integer),
    "asApproximateFloat": _of_amount(CelQuantity.as_float),
    "add": _plus(1),
    "sub": _plus(-1),
    "semver": _semver,
    "isSemver": _is_semver,
    "major": _of_version(lambda version: version.major),
    "minor": _of_version(lambda version: version.minor),
    "patch": _of_version(lambda version: version.patch),
    "compareTo": _rank(lambda order: order),
    "isGreaterThan": _rank(lambda order: order > 0),
    "isLessThan": _rank(lambda order: order < 0),
}
