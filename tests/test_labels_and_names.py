"""Labels, annotations and generated names have one home each.

The homes are `api_types.labels` and `api_types.names`.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from api_types import labels

ROOT = Path(__file__).parent.parent
# The testbed imitates the clusters and their operators. It imports nothing from the
# project, and has its own keys.
PARTS = (
    "api_types",
    "scheduler",
    "activities",
    "workflows",
    "fleet_client",
    "client",
    "front",
)
PRODUCT = [
    ROOT / "worker.py",
    *(path for part in PARTS for path in (ROOT / part).rglob("*.py")),
]
KEY = re.compile(rf"{re.escape(labels.RESERVED_PREFIX)}(?!v\d|\0)")
OWN_PREFIXES = ("modelcache-", "mpx-")
Text = ast.Constant | ast.JoinedStr


@cache
def texts(source: str) -> tuple[Text, ...]:
    """Return the literal texts and f-strings of a module, without docstrings.

    Cached, because both checks read every module.
    """
    nodes = list(ast.walk(ast.parse(source)))
    # A string that is a statement of its own documents a module, a class, a function or
    # an attribute.
    documents = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return tuple(
        node for node in nodes if isinstance(node, Text) and id(node) not in documents
    )


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Yield each literal text with its line.

    The parts of an f-string are joined, with the group for its constant.
    """
    for node in texts(source):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(_part(value) for value in node.values)
        elif isinstance(node.value, str):
            yield node.lineno, node.value


def _part(value: ast.expr) -> str:
    if isinstance(value, ast.FormattedValue):
        return (
            labels.GROUP
            if ast.unparse(value.value) in ("GROUP", "labels.GROUP")
            else "\0"
        )
    return str(value.value) if isinstance(value, ast.Constant) else ""


def own_keys(source: str) -> list[str]:
    """Return literals with a key in the project's API group.

    `modelplane.ai/v1alpha1` is not a key.
    """
    return [f"{line}: {text}" for line, text in literals(source) if KEY.search(text)]


def own_names(source: str) -> list[str]:
    """Return literals that start or end like a generated name."""
    made = [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in texts(source)
        if isinstance(node, ast.JoinedStr)
        and isinstance(node.values[0], ast.FormattedValue)
        and re.search(
            r"\b(workload|picker|claim|replica)$", ast.unparse(node.values[0].value)
        )
        and len(node.values) > 1
        and isinstance(node.values[1], ast.Constant)
        and re.match("-.", str(node.values[1].value))
    ]
    return made + [
        f"{line}: {text}"
        for line, text in literals(source)
        if text.startswith(OWN_PREFIXES)
    ]


@pytest.mark.slow
def test_no_other_module_writes_a_label_of_the_project() -> None:
    home = ROOT / "api_types" / "labels.py"
    assert {
        str(path.relative_to(ROOT)): found
        for path in PRODUCT
        if path != home and (found := own_keys(path.read_text()))
    } == {}
    assert own_keys(home.read_text())


@pytest.mark.slow
def test_no_other_module_generates_a_name() -> None:
    home = ROOT / "api_types" / "names.py"
    assert {
        str(path.relative_to(ROOT)): found
        for path in PRODUCT
        if path != home and (found := own_names(path.read_text()))
    } == {}
    assert own_names(home.read_text())


@pytest.mark.parametrize(
    "source",
    [
        'ZONE = "modelplane.ai/zone"',
        'ZONE = f"{labels.GROUP}/zone"',
        'raise ValueError(f"set modelplane.ai/zone on {name}")',
    ],
)
def test_a_label_is_recognised_however_it_is_written(source: str) -> None:
    assert own_keys(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""About modelplane.ai/zone."""',
        'VERSION = "modelplane.ai/v1alpha1"',
        'V = f"{GROUP}/{VERSION}"',
    ],
)
def test_other_texts_are_not_taken_for_labels(source: str) -> None:
    assert not own_keys(source)
