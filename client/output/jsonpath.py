r"""kubectl's JSONPath templates: `{.status.phase}`, `{range .items[*]}…{end}`, `{"\n"}`.

A template is text with expressions in braces. The paths of expressions are evaluated by
python-jsonpath, whose syntax (RFC 9535) differs: kubectl writes them without `$`, and a
dot in a name as `\.`.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jsonpath

from client.output.formats import shown
from fleet_client.errors import Refused

Render = Callable[[Any], str]

_LENGTH_MAX = 16 * 1024
# A quoted text may contain braces.
_PART = re.compile(
    r"""\{(?P<expression>(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^{}"'])*)\}"""
    r"|(?P<text>[^{}]+)|(?P<wrong>.)",
    re.DOTALL,
)
_NAME = re.compile(r"\.(?P<name>(?:\\.|[^.\[\]\s\\*])+)")
_BRACKET = re.compile(r"""\[(?:"[^"]*"|'[^']*'|[^\]"'])*\]""")
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\"": '"', r"\'": "'", r"\\": "\\"}
_ESCAPE = re.compile(r"\\[nt\"'\\]")


def template_of(text: str) -> Render:
    """Compile a template. Raise `Refused` with the bad part."""
    if len(text) > _LENGTH_MAX:
        raise Refused(
            f"the JSONPath template is longer than {_LENGTH_MAX} characters",
            next_step="print with `-o json` and select with a program such as jq",
        )
    parts = iter(_parts(text))
    nodes = list(_nodes(parts, text, inside=False))
    return lambda value: "".join(node(value) for node in nodes)


def path_of(text: str) -> Callable[[Any], Sequence[Any]]:
    """Compile a path, with or without braces. It returns the values, perhaps none.

    Raise `Refused` if the path is malformed.
    """
    bare = text.strip().removeprefix("{").removesuffix("}").strip()
    if not bare.startswith((".", "[", "$", "@")):
        bare = f".{bare}"
    bare = bare.removeprefix("$").removeprefix("@")
    try:
        compiled = jsonpath.compile("$" + _standard(bare))
    except jsonpath.JSONPathError as error:
        raise Refused(
            f"{text!r} is not a JSONPath: {str(error).splitlines()[0]}",
            next_step=(
                "write a path such as `.metadata.name`, `.items[*].spec.replicas` or "
                '`.status.conditions[?(@.type=="Ready")].status`'
            ),
        ) from error
    return compiled.findall


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for part in _PART.finditer(text):
        if part["wrong"] is not None:
            raise _unbalanced(text)
        if part["text"] is not None:
            yield "text", part["text"]
        else:
            yield "expression", part["expression"].strip()


def _nodes(
    parts: Iterator[tuple[str, str]], text: str, *, inside: bool
) -> Iterator[Render]:
    """Yield the nodes up to the end, or inside a range up to its `{end}`."""
    for kind, part in parts:
        if kind == "text":
            yield _constant(part)
        elif part == "end":
            if not inside:
                raise _unbalanced(text)
            return
        elif part.startswith("range"):
            body = list(_nodes(parts, text, inside=True))
            yield _range(path_of(part.removeprefix("range")), body)
        elif part[:1] in ("'", '"'):
            unquoted = _ESCAPE.sub(lambda found: _ESCAPES[found[0]], part[1:-1])
            yield _constant(unquoted)
        else:
            yield _values(path_of(part))
    if inside:
        raise _unbalanced(text)


def _constant(text: str) -> Render:
    return lambda _: text


def _values(find: Callable[[Any], Sequence[Any]]) -> Render:
    return lambda value: " ".join(shown(found) for found in find(value))


def _range(find: Callable[[Any], Sequence[Any]], body: Sequence[Render]) -> Render:
    return lambda value: "".join(node(each) for each in find(value) for node in body)


def _standard(path: str) -> str:
    """Write the names of a path in brackets, where any character may stand.

    Text in brackets stays: it is an index, a quoted name or a filter.
    """
    written, at = "", 0
    while at < len(path):
        if bracket := _BRACKET.match(path, at):
            written += bracket[0]
            at = bracket.end()
        elif named := _NAME.match(path, at):
            # The second dot of `..name` means any depth.
            dot = "." if written.endswith(".") else ""
            name = re.sub(r"\\(.)", r"\1", named["name"])
            written += f"{dot}[{json.dumps(name)}]"
            at = named.end()
        else:
            written += path[at]
            at += 1
    return written


def _unbalanced(text: str) -> Refused:
    return Refused(
        f"the JSONPath template {text!r} has a brace, `{{range}}` or `{{end}}` too many or "
        "too few",
        next_step="""for example `-o jsonpath='{range .items[*]}{.metadata.name}{"\\n"}{end}'`""",
    )
