"""Change an input: the nodes of its tree, or its text.

Nodes are deleted, repeated, moved or replaced by values that break readers. Every
choice is drawn from the given source of random numbers, so a seed produces the same
inputs again.
"""

import json
import random
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from api_types.text.reader import Unreadable, read_trees

Node = Any
Path = tuple[str | int, ...]

_TREE_BYTES_MAX = 200_000
_TEXT_MAX = 400_000
_DEPTH_MAX = 80
_NUMBERS_MAX = 20
# Python's JSON encoder cannot write a number longer than the decoder's limit.
_DIGITS = re.compile(r'"@digits:(-?)(\d{1,6})@"')

TEXTS = [
    "",
    " ",
    "\0",
    "\x1b[31m\x1b[2J",
    "\x9b2J",
    "\u202egnp",
    "\u2028",
    "\ud800",
    "\udfff\ud800",
    "a\nb: c",
    "a" * 64,
    "a" * 300,
    "a" * 70_000,
    "é" * 40_000,
    "9" * 20,
    "9" * 5_000,
    "-" + "9" * 5_000,
    "1e999999999",
    "1" * 64 + "Gi",
    "0." + "9" * 5_000,
    "9" * 5_000 + "Ei",
    "nan",
    "inf",
    "../../../etc/passwd",
    "/dev/stdin",
    "http://[::1",
    "http://127。0。0。1:99999",
    "https://user:pass@localhost:" + "9" * 5_000,
    "[" * 3_000,
    "((" * 3_000,
    "{{ . }}",
    "$(X)",
    "%s%n%d",
    "a,b=c,!d,e in (f,g)",
    "\N{PILE OF POO}",
    "①②⑦",
    "--port=" + "9" * 5_000,
    "--block-size",
    "sh",
    "-c",
    "'" * 501,
    "a=b " * 5_000,
    "true",
    "null",
    "2026-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "v1.2.3",
    "1." * 3_000 + "0",
    "modelplane.ai/price-per-node-hour",
    "__proto__",
    "model_config",
]
NUMBERS = [
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63,
    -(2**64),
    10**30,
    0.5,
    -0.0,
    1e308,
    1e-320,
    float("nan"),
    float("inf"),
    float("-inf"),
]
TOKENS = [
    *"{}[]:,&*!|>'\"%@`#?-\n\t \\",
    "\n---\n",
    "\n...\n",
    "<<: *a\n",
    "&a ",
    "*a",
    "!!int ",
    "!!binary ",
    "!x ",
    "%TAG ! x\n",
    "? ",
    "- ",
    "\\ud800",
    "\\u0000",
    "\\x1b",
    "0x" + "f" * 5_000,
    "0o" + "7" * 5_000,
    "{" * 500,
    "[" * 500,
    "\r\n",
    "\ufeff",
    " && ",
    " || ",
    "device.",
    ".matches('(a*)*b')",
    ".exists(x, x == x)",
    ".map(x, [x, x])",
    "quantity('1')",
    "'a' + ",
    "!(",
    "9223372036854775808",
]


def _deep(levels: int, *, of: str) -> Node:
    node: Node = 1
    for _ in range(levels):
        node = [node] if of == "list" else {"a": node}
    return node


def _hostile(source: random.Random) -> Node:
    makers: list[Callable[[], Node]] = [
        lambda: None,
        lambda: source.choice([True, False]),
        lambda: source.choice(NUMBERS),
        lambda: (
            f"@digits:{source.choice(['', '-'])}{source.choice([65, 4_299, 5_000, 100_000])}@"
        ),
        lambda: source.choice(TEXTS),
        lambda: source.choice(TEXTS),
        lambda: source.choice(TEXTS) * source.choice([2, 50]),
        lambda: source.choice([[], {}, [[]], [None], {"": None}, {"a": {}}, [{}]]),
        lambda: _deep(
            source.choice([10, 63, 70, 200]), of=source.choice(["list", "object"])
        ),
        lambda: [source.choice(TEXTS[:12])] * source.choice([9, 300, 5_000]),
        lambda: {
            f"{source.choice(['a', 'modelplane.ai/x', chr(27)])}{number}": 1
            for number in range(source.choice([20, 3_000]))
        },
    ]
    return source.choice(makers)()


def mutated(text: str, source: random.Random) -> str:
    """Return an input that differs from another one in a few places."""
    trees = _trees(text)
    if trees is not None and source.random() < 0.8:
        for _ in range(source.choice([1, 1, 1, 2, 3, 6])):
            _change(trees, source)
        text = source.choice(["\n---\n", "\n"]).join(
            _written(tree, source) for tree in trees
        )
        if source.random() < 0.9:
            return text[:_TEXT_MAX]
    for _ in range(source.choice([1, 1, 2, 5])):
        text = _change_text(text, source)
    return text[:_TEXT_MAX]


def _trees(text: str) -> list[Node] | None:
    if len(text) > _TREE_BYTES_MAX:
        return None
    try:
        # JSON resolves aliases, and rejects cycles.
        trees = [json.loads(json.dumps(tree)) for tree, _ in read_trees(text)]
    except (Unreadable, RecursionError, TypeError, ValueError):
        return None
    return trees if len(json.dumps(trees)) < _TEXT_MAX else None


def _written(tree: Node, source: random.Random) -> str:
    encoder = json.JSONEncoder(
        ensure_ascii=source.random() < 0.5, indent=source.choice([None, 1])
    )
    text = ""
    # Repeated nodes may be gigabytes; only this size is kept.
    for part in encoder.iterencode(tree):
        text += part
        if len(text) > _TEXT_MAX:
            break
    return _DIGITS.sub(
        lambda found: found[1] + "9" * int(found[2]), text, count=_NUMBERS_MAX
    )


def _paths(node: Node, at: Path = ()) -> list[Path]:
    found = [at]
    if len(at) > _DEPTH_MAX:
        return found
    if isinstance(node, dict):
        for key, item in node.items():
            found += _paths(item, (*at, key))
    elif isinstance(node, list):
        for index, item in enumerate(node[:50]):
            found += _paths(item, (*at, index))
    return found


def _change(trees: list[Node], source: random.Random) -> None:
    paths = [path for path in _paths(trees) if path]
    if not paths:
        trees.append(_hostile(source))
        return
    path = source.choice(paths)
    parent = _at(trees, path[:-1])
    key = path[-1]
    change = source.choice(
        [
            _delete,
            _replace,
            _replace,
            _replace,
            _move,
            _repeat,
            _rename,
            _add,
            _wrap,
            _edit,
            _edit,
        ]
    )
    change(trees, parent, key, source)


def _at(tree: Node, path: Path) -> Node:
    for key in path:
        tree = tree[key]
    return tree


def _delete(_: list[Node], parent: Node, key: Node, __: random.Random) -> None:
    del parent[key]


def _replace(_: list[Node], parent: Node, key: Node, source: random.Random) -> None:
    parent[key] = _hostile(source)


def _move(trees: list[Node], parent: Node, key: Node, source: random.Random) -> None:
    node = deepcopy(_at(trees, source.choice(_paths(trees)[1:])))
    if len(json.dumps(node)) + len(json.dumps(trees)) < _TEXT_MAX:
        parent[key] = node


def _repeat(trees: list[Node], parent: Node, key: Node, source: random.Random) -> None:
    node, times = parent[key], source.choice([1, 9, 60, 1_500])
    if (
        isinstance(parent, list)
        and len(json.dumps(node)) * times < _TEXT_MAX
        and not (parent is trees and times > 60)
    ):
        parent[key:key] = [node] * times


def _rename(_: list[Node], parent: Node, key: Node, source: random.Random) -> None:
    if isinstance(parent, dict):
        name = source.choice(
            [
                source.choice(TEXTS),
                f"{key}x",
                str(key).upper(),
                source.choice(list(parent)),
            ]
        )
        parent[name] = parent.pop(key)


def _add(_: list[Node], parent: Node, key: Node, source: random.Random) -> None:
    node = parent[key]
    if isinstance(node, dict):
        node[source.choice(TEXTS)] = _hostile(source)
    elif isinstance(node, list):
        node.append(_hostile(source))
    else:
        parent[key] = [node, _hostile(source)]


def _wrap(_: list[Node], parent: Node, key: Node, source: random.Random) -> None:
    node = parent[key]
    parent[key] = source.choice([[node], {"a": node}, json.dumps(node), str(node)])


def _edit(_: list[Node], parent: Node, key: Node, source: random.Random) -> None:
    node = parent[key]
    if isinstance(node, str):
        parent[key] = _change_text(node, source)
    elif isinstance(node, bool) or node is None:
        parent[key] = source.choice([True, False, None, 0, 1, "true"])
    elif isinstance(node, int | float):
        parent[key] = source.choice([node + 1, -node, node * 1000, str(node), *NUMBERS])
    else:
        parent[key] = _hostile(source)


def _change_text(text: str, source: random.Random) -> str:
    start, end = sorted((source.randint(0, len(text)), source.randint(0, len(text))))
    end = min(end, start + source.choice([1, 5, 50, 5_000]))
    part = text[start:end]
    put: str = source.choice(
        [
            "",
            part * 2,
            part * source.choice([3, 100, 20_000 // (len(part) + 1) + 1]),
            source.choice(TOKENS),
            source.choice(TOKENS) + part,
            part + source.choice(TOKENS),
            source.choice(TOKENS) * source.choice([2, 40, 3_000]),
            source.choice(TEXTS),
            chr(
                source.choice(
                    [
                        source.randint(0, 127),
                        source.randint(128, 0x2FFF),
                        source.randint(0xD7F0, 0xE010),
                    ]
                )
            ),
        ]
    )
    return (text[:start] + put + text[end:])[:_TEXT_MAX]
