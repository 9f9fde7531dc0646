"""The comparisons of a selector that a device fails, for explanations.

A selector is usually a chain of `&&` whose terms compare one attribute or capacity with
a constant. Each term is evaluated separately. Terms of another form are not reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from api_types.text.quantity import parse_quantity
from scheduler.cel.bounded_cache import bounded_cache
from scheduler.cel.errors import Aborted, EvalError
from scheduler.cel.limits import FLEET_COST_MAX
from scheduler.cel.selector import compile_selector, with_enough_stack

if TYPE_CHECKING:
    from scheduler.cel.runtime.instructions import Program
    from scheduler.cel.syntax import tree
    from scheduler.model.devices import DeviceEntry

_WORDS = {
    "_==_": "{}",
    "_!=_": "not {}",
    "_<_": "less than {}",
    "_<=_": "at most {}",
    "_>_": "more than {}",
    "_>=_": "at least {}",
}
_MIRRORED = {
    "_==_": "_==_",
    "_!=_": "_!=_",
    "_<_": "_>_",
    "_<=_": "_>=_",
    "_>_": "_<_",
    "_>=_": "_<=_",
}
_RANKS = {"isGreaterThan": "_>_", "isLessThan": "_<_"}
_TEXTS = {
    "startsWith": "beginning with {}",
    "endsWith": "ending with {}",
    "contains": "containing {}",
    "matches": "matching {}",
}
_CONTENTS = frozenset({"orValue", "value"})
_CONSTANTS = frozenset({"quantity", "semver"})
_AT_LEAST = "_>=_"
_PRESENT = "any value"


@dataclass(frozen=True, slots=True)
class Unmet:
    """A comparison that a device fails.

    Attributes:
        name: name of the attribute or capacity, with its domain unless that is the device's
            driver; `driver` for the driver.
        has: the device's value as its class writes it, or empty if it does not have the name.
        wants: the condition on the value, in words.
        names: the device's attributes or capacities by name; empty if it has a value.
        at_least: offset of the constant in the selector if larger values match too, else -1.
        named_at: offset of the name in the selector if the device does not have it, else -1.

    """

    name: str
    has: str
    wants: str
    names: tuple[str, ...] = ()
    at_least: int = -1
    named_at: int = -1


class _Comparison(NamedTuple):
    """The value that a term reads, and its condition.

    `kind` is driver, attributes or capacity.
    """

    kind: str
    domain: str
    name: str
    operator: str
    wants: str
    at: int
    named_at: int


class _Path(NamedTuple):
    """The value that a term reads, and the offset of its name in the selector."""

    kind: str
    domain: str
    name: str
    at: int


class _Term(NamedTuple):
    program: Program
    comparison: _Comparison | None


def unmet_comparisons(
    text: str,
    device: DeviceEntry,
    *,
    lenient_calls: bool = False,
    max_cost: int = FLEET_COST_MAX,
) -> tuple[Unmet, ...]:
    """Return the comparisons that a device fails, in their order in the text.

    A device that cannot be read has none, because no selector matches it.
    """
    # The engine is loaded with the first selector.
    from scheduler.cel.runtime.device import read_device  # noqa: PLC0415
    from scheduler.cel.runtime.machine import run  # noqa: PLC0415

    seen = read_device(device)
    if isinstance(seen, EvalError):
        return ()
    found = []
    for term in with_enough_stack(lambda: _terms(text, lenient_calls)):
        if term.comparison is None:
            continue
        try:
            result = run(term.program, seen.value(), max_cost).result
        except Aborted:
            continue
        if result is not True:
            found.append(_unmet(term.comparison, device))
    return tuple(found)


def device_problem(device: DeviceEntry) -> str:
    """Return why no selector can be evaluated for a device, or an empty text."""
    from scheduler.cel.runtime.device import read_device  # noqa: PLC0415

    seen = read_device(device)
    return seen.reason if isinstance(seen, EvalError) else ""


def lowered(text: str, unmet: Unmet) -> str:
    """Return a selector whose lower bound is replaced by the value of the device.

    The result is empty if the value is not a quantity, or is not below the bound.
    """
    from scheduler.cel.syntax.lexer import token_end  # noqa: PLC0415

    end = token_end(text, unmet.at_least) if unmet.at_least >= 0 else 0
    wanted = text[unmet.at_least : end]
    if not end or wanted[:1] not in {'"', "'"} or wanted[-1] != wanted[0]:
        return ""
    try:
        if parse_quantity(unmet.has) >= parse_quantity(wanted[1:-1]):
            return ""
    except ValueError:
        return ""
    return f"{text[: unmet.at_least]}{wanted[0]}{unmet.has}{wanted[0]}{text[end:]}"


def renamed(text: str, unmet: Unmet, name: str) -> str:
    """Return a selector that reads another name instead of the missing one.

    The result is empty if the name cannot be written at that place.
    """
    start = unmet.named_at
    dot = start >= 0 and text[start] == "."
    start += dot or text[start : start + 1] in {'"', "'"}
    start += dot and text[start : start + 1] == "?"
    if (
        unmet.named_at < 0
        or text[start : start + len(unmet.name)] != unmet.name
        or (dot and not name.isidentifier())
    ):
        return ""
    return text[:start] + name + text[start + len(unmet.name) :]


@bounded_cache(lambda text, _lenient_calls: len(text))
def _terms(text: str, lenient_calls: bool) -> tuple[_Term, ...]:
    from scheduler.cel.checking.checker import Checker  # noqa: PLC0415
    from scheduler.cel.program import Compiler  # noqa: PLC0415
    from scheduler.cel.syntax.parser import parse  # noqa: PLC0415

    compile_selector(text, lenient_calls=lenient_calls)
    root = parse(text)
    Checker(text, lenient_calls=lenient_calls).check(root)
    return tuple(
        _Term(Compiler(text).compile(term), _comparison(term))
        for term in _chained(root, "&&")
    )


def _chained(root: tree.Node, operator: str) -> Iterator[tree.Node]:
    """Return the terms of a chain of `&&` or `||`, including those of chains inside it."""
    from scheduler.cel.syntax.tree import Logic  # noqa: PLC0415

    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, Logic) and node.operator == operator:
            pending.extend(reversed(node.terms))
        else:
            yield node


def _comparison(node: tree.Node) -> _Comparison | None:
    """Read a term as a comparison.

    Alternatives are one comparison if they read one value.
    """
    found = [_single(each) for each in _chained(node, "||")]
    first = found[0]
    if first is None or any(each is None or each[:3] != first[:3] for each in found):
        return None
    wants = " or ".join(dict.fromkeys(each.wants for each in found if each))
    return first if len(found) == 1 else first._replace(operator="", wants=wants)


def _single(node: tree.Node) -> _Comparison | None:
    from scheduler.cel.syntax.tree import Call, ListLiteral, Select  # noqa: PLC0415

    if isinstance(node, Select) and node.test:
        return _of(Select(node.operand.at, node.operand, node.name), "", _PRESENT)
    if not isinstance(node, Call):
        return _of(node, "_==_", "true")
    args = node.args
    if node.function == "hasValue" and node.target is not None:
        return _of(node.target, "", _PRESENT)
    if node.function == "!_":
        return _of(args[0], "_==_", "false")
    if node.function in _WORDS:
        compared = args[0]
        if (
            isinstance(compared, Call)
            and compared.function == "compareTo"
            and compared.target is not None
            and _constant(args[1]) == "0"
        ):
            return _ordered(compared.target, node.function, compared.args[0])
        return _ordered(compared, node.function, args[1])
    if node.function in _RANKS and node.target is not None:
        return _ordered(node.target, _RANKS[node.function], args[0])
    if node.function in _TEXTS and node.target is not None and _constant(args[0]):
        return _of(node.target, "", _TEXTS[node.function].format(_constant(args[0])))
    if node.function == "@in" and isinstance(args[1], ListLiteral):
        wanted = [_constant(each) for each in args[1].elements]
        return _of(args[0], "", " or ".join(wanted)) if wanted and all(wanted) else None
    if node.function == "@in":
        key = _constant(args[0])
        return _of(Select(node.at, args[1], key), "", _PRESENT) if key else None
    return _of(node, "_==_", "true")


def _ordered(left: tree.Node, operator: str, right: tree.Node) -> _Comparison | None:
    if _constant(left):
        left, operator, right = right, _MIRRORED[operator], left
    wanted = _constant(right)
    if not wanted:
        return None
    return _of(left, operator, _WORDS[operator].format(wanted), _offset(right))


def _of(node: tree.Node, operator: str, wants: str, at: int = -1) -> _Comparison | None:
    read = _path(node)
    return _Comparison(*read[:3], operator, wants, at, read.at) if read else None


def _path(node: tree.Node) -> _Path | None:
    """Read `device.driver` or `device.attributes[domain].name` and the like."""
    from scheduler.cel.syntax.tree import Ident, Select  # noqa: PLC0415

    node = _optional_of(node)
    outer = _step(node)
    if outer is None:
        return None
    operand, name, at = outer
    if isinstance(operand, Ident) and isinstance(node, Select):
        is_driver = operand.name == "device" and name == "driver"
        return _Path("driver", "", "driver", -1) if is_driver else None
    inner = _step(operand)
    if inner is None:
        return None
    kind, domain, _ = inner
    if not isinstance(kind, Select) or kind.name not in {"attributes", "capacity"}:
        return None
    if not isinstance(kind.operand, Ident) or kind.operand.name != "device":
        return None
    return _Path(kind.name, domain, name, at)


def _optional_of(node: tree.Node) -> tree.Node:
    """Return the optional that `orValue` or `value` reads, or the node itself."""
    from scheduler.cel.syntax.tree import Call  # noqa: PLC0415

    if isinstance(node, Call) and node.function in _CONTENTS:
        return node.target or node
    return node


def _step(node: tree.Node) -> tuple[tree.Node, str, int] | None:
    """Read `operand.name` or `operand["name"]`, with the offset of the name."""
    from scheduler.cel.syntax.tree import Literal, Select, is_index  # noqa: PLC0415

    if isinstance(node, Select) and not node.test:
        return node.operand, node.name, node.at
    if is_index(node):
        key = node.args[1]
        if isinstance(key, Literal) and type(key.value) is str:
            return node.args[0], key.value, key.at
    return None


def _constant(node: tree.Node) -> str:
    """Return a constant as a class writes it, or an empty text for another node."""
    from scheduler.cel.syntax.tree import Call, Literal  # noqa: PLC0415

    if isinstance(node, Call) and node.function in _CONSTANTS and node.target is None:
        return _constant(node.args[0])
    if isinstance(node, Literal) and type(node.value) in {str, bool, int}:
        return _written(node.value)
    return ""


def _offset(node: tree.Node) -> int:
    from scheduler.cel.syntax.tree import Call  # noqa: PLC0415

    return node.args[0].at if isinstance(node, Call) else node.at


def _unmet(comparison: _Comparison, device: DeviceEntry) -> Unmet:
    kind, domain, name, operator, wants, at, named_at = comparison
    if kind == "driver":
        return Unmet(name, device.driver, wants)
    values = {
        _shown(key, device): _written(value) for key, _, value in device.attributes
    }
    if kind == "capacity":
        values = {_shown(key, device): amount for key, amount in device.capacity}
    shown = name if domain == device.driver else f"{domain}/{name}"
    if shown in values:
        return Unmet(
            shown, values[shown], wants, at_least=at if operator == _AT_LEAST else -1
        )
    # Next to a name of another domain, names of the driver's domain are qualified too.
    names = (
        values
        if domain == device.driver
        else [key if "/" in key else f"{device.driver}/{key}" for key in values]
    )
    return Unmet(
        shown,
        "",
        wants,
        tuple(names),
        named_at=named_at if domain == device.driver else -1,
    )


def _shown(key: str, device: DeviceEntry) -> str:
    return key.removeprefix(f"{device.driver}/")


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
