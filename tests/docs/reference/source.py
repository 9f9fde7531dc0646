"""Facts that the reference reads from the source: conditions, events and metrics.

They are arguments of calls that are spread over the workflows. A name is resolved in its
module; a value that is known only at run time is left out.
"""

import ast
import contextlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from api_types.resources.kinds import KINDS

ROOT = Path(__file__).parents[3]
_VERDICT_ARGUMENTS = 2
_SETTERS = ("set_condition", "DecidedCondition")
# Modules that serve several kinds, and the workflows that belong to an InferenceCluster.
_ENTITY = "every kind"
_KIND_OF = {"cloud_cluster": "InferenceCluster"}


class Reason(NamedTuple):
    """A reason of a condition. The type is empty where a function returns the verdict."""

    kind: str
    type: str
    status: str
    reason: str


class Event(NamedTuple):
    """An event; `message` has its parts that vary in braces, and is empty if all of it varies."""

    kind: str
    type: str
    reason: str
    message: str


class Metric(NamedTuple):
    """A metric of a process."""

    name: str
    sort: str
    labels: tuple[str, ...]
    meaning: str


class _Module(NamedTuple):
    path: str
    tree: ast.Module
    names: dict[str, Any]


def _modules(*packages: str) -> Iterator[_Module]:
    for package in packages:
        for file in sorted((ROOT / package).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            dotted = (
                path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            )
            names = vars(import_module(dotted))
            yield _Module(path, ast.parse(file.read_text()), names)


def _kind_of(path: str) -> str:
    if path.startswith("scheduler/"):
        return "ModelDeployment"
    folder = path.split("/")[1].removesuffix(".py")
    by_folder = {info.singular: info.kind for info in KINDS}
    folder_kind = _KIND_OF.get(folder) or by_folder.get(folder.replace("_", ""))
    return folder_kind or _ENTITY


def _value(node: ast.expr, names: dict[str, Any]) -> str:
    """Return the text of an expression, or "" if only a run knows it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name | ast.Attribute):
        with contextlib.suppress(NameError, AttributeError):
            found = eval(ast.unparse(node), {"__builtins__": {}}, names)  # noqa: S307
            return found if isinstance(found, str) else ""
    return ""


def _varying(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return f"{{{node.id.strip('_')}}}"
    return f"{{{node.attr.strip('_')}}}" if isinstance(node, ast.Attribute) else "…"


def _template(node: ast.expr, names: dict[str, Any]) -> str:
    """Return a message with the names of its values in braces, such as `{cluster}`."""
    if not isinstance(node, ast.JoinedStr):
        return _value(node, names)
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue):
            parts.append(_value(part.value, names) or _varying(part.value))
    text = "".join(parts)
    return text if any(isinstance(part, ast.Constant) for part in node.values) else ""


def _calls(module: _Module) -> Iterator[tuple[str, list[ast.expr]]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            yield (
                name or (function.id if isinstance(function, ast.Name) else ""),
                node.args,
            )


def reasons() -> list[Reason]:
    """Return every reason of a condition that the workflows name."""
    found = set()
    for module in _modules("scheduler", "workflows"):
        kind = _kind_of(module.path)
        for name, arguments in _calls(module):
            if (
                name in ("set_condition", "DecidedCondition")
                and len(arguments) > _VERDICT_ARGUMENTS
            ):
                kind_of_condition = _value(arguments[0], module.names)
                verdict = arguments[1:]
            elif name == "Verdict" and len(arguments) >= _VERDICT_ARGUMENTS:
                kind_of_condition, verdict = "", arguments
            else:
                continue
            status, reason = (_value(each, module.names) for each in verdict[:2])
            if reason:
                found.add(Reason(kind, kind_of_condition, status, reason))
    return sorted(found)


def condition_types() -> dict[str, set[str]]:
    """Return the types of conditions that each kind names."""
    found: dict[str, set[str]] = {}
    for module in _modules("workflows"):
        kind = _kind_of(module.path)
        for name, arguments in _calls(module):
            if name == "set_condition":
                found.setdefault(kind, set()).add(_value(arguments[0], module.names))
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Tuple) and len(node.elts) == _VERDICT_ARGUMENTS:
                key, verdict = node.elts
                if isinstance(verdict, ast.Call) and ast.unparse(verdict.func).endswith(
                    "verdict"
                ):
                    found.setdefault(kind, set()).add(_value(key, module.names))
            if isinstance(node, ast.Dict):
                for key_node, value in zip(node.keys, node.values, strict=True):
                    if key_node and "Verdict(" in ast.unparse(value):
                        found.setdefault(kind, set()).add(
                            _value(key_node, module.names)
                        )
    return {kind: types - {""} for kind, types in found.items()}


def kinds_that_name(condition: str) -> set[str]:
    """Return the kinds whose workflows name a type of condition anywhere."""
    return {
        _kind_of(module.path)
        for module in _modules("workflows")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and node.value == condition
    }


def events() -> list[Event]:
    """Return every event that the workflows record, with the template of its message."""
    found = set()
    for module in _modules("workflows"):
        for name, arguments in _calls(module):
            if (
                name not in ("record", "record_event")
                or len(arguments) <= _VERDICT_ARGUMENTS
            ):
                continue
            kind, reason = (_value(each, module.names) for each in arguments[:2])
            if kind in ("Normal", "Warning") and reason:
                text = _template(arguments[2], module.names)
                found.add(Event(_kind_of(module.path), kind, reason, text))
    return sorted(found)


def metrics() -> list[Metric]:
    """Return the metrics that the programs define."""
    found = []
    for module in _modules("activities", "front"):
        for name, arguments in _calls(module):
            if (
                name in ("Counter", "Gauge", "Histogram", "Summary")
                and len(arguments) > 1
            ):
                metric, meaning = (_value(each, module.names) for each in arguments[:2])
                if not metric or not meaning:
                    continue
                labels = ast.literal_eval(arguments[2]) if arguments[2:] else ()
                found.append(Metric(metric, name, tuple(labels), meaning))
    return sorted(found)
