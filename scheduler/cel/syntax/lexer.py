"""Tokens of CEL, exactly as the reference grammar splits text into them.

cel-python brings the grammar, but its terminals are looser than CEL's: they let unknown escapes through and end some raw
strings in the wrong place. A selector read differently here than on the workload cluster may match other devices, so the text
is tokenized by the rules of the CEL grammar and only then given to cel-python's parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lark import Token
from lark.lexer import Lexer

from scheduler.cel.errors import SelectorError

_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""

_STRING = "|".join(
    [
        rf'"""(?:{_ESCAPE}|[^\\])*?"""',
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
        r'[rR]"""(?:.|\n)*?"""',
        r"[rR]'''(?:.|\n)*?'''",
        r'[rR]"[^"\n\r]*"',
        r"[rR]'[^'\n\r]*'",
    ],
)

_TOKEN = re.compile(
    rf"""
      (?P<SKIP>[\t\ \r\n\f]+|//[^\n]*)
    | (?P<FLOAT_LIT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    | (?P<UINT_LIT>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    | (?P<INT_LIT>0x[0-9a-fA-F]+|[0-9]+)
    | (?P<BYTES_LIT>[bB](?:{_STRING}))
    | (?P<STRING_LIT>{_STRING})
    | (?P<IDENT>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<PUNCTUATION>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])
    """,
    re.VERBOSE | re.DOTALL,
)


def token_end(text: str, at: int) -> int:
    """Give the offset behind the token that begins at `at`; `at` itself where none begins."""
    token = _TOKEN.match(text, at)
    return token.end() if token else at


# Names that cel-python's grammar gives to its keywords and punctuation.
_GRAMMAR_NAMES = {
    "||": "__ANON_0",
    "&&": "__ANON_1",
    "<=": "__ANON_2",
    ">=": "__ANON_3",
    "==": "__ANON_4",
    "!=": "__ANON_5",
    "<": "LESSTHAN",
    ">": "MORETHAN",
    "?": "QMARK",
    ":": "COLON",
    "+": "PLUS",
    "-": "MINUS",
    "*": "STAR",
    "/": "SLASH",
    "%": "PERCENT",
    "!": "BANG",
    ".": "DOT",
    "(": "LPAR",
    ")": "RPAR",
    "[": "LSQB",
    "]": "RSQB",
    "{": "LBRACE",
    "}": "RBRACE",
    ",": "COMMA",
    "in": "IN",
    "true": "BOOL_LIT",
    "false": "BOOL_LIT",
    "null": "NULL_LIT",
}

RESERVED = frozenset(
    {
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    },
)

# After one of these a `-` subtracts; anywhere else it belongs to what follows.
_ENDS_OPERAND = frozenset(
    {"IDENT", "INT_LIT", "UINT_LIT", "FLOAT_LIT", "STRING_LIT", "BYTES_LIT", "BOOL_LIT", "NULL_LIT", "RPAR", "RSQB", "RBRACE"},
)

_OPENING = frozenset({"LPAR", "LSQB", "LBRACE"})
_CLOSING = frozenset({"RPAR", "RSQB", "RBRACE"})


def place(text: str, offset: int) -> tuple[int, int]:
    """Line and column, both 1-based, of a character."""
    line_start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset) + 1, offset - line_start + 1


def refuse(text: str, offset: int, problem: str) -> SelectorError:
    """Build the refusal of `text` at `offset`."""
    line, column = place(text, offset)
    return SelectorError(problem, line=line, column=column)


def tokens(text: str) -> Iterator[Token]:
    """Split `text` into the terminals of cel-python's grammar.

    Raises:
        SelectorError: a character or literal that CEL does not know.

    """
    comma: Token | None = None
    literals: list[bool] = []  # per open bracket, whether it opened a list or map
    before = ""
    for token in _cut(text):
        if token.type in _OPENING:
            literals.append(token.type != "LPAR" and before not in _ENDS_OPERAND)
        closes_literal = token.type in _CLOSING and bool(literals) and literals.pop()
        if comma is not None:
            # CEL allows one trailing comma in a list or map, cel-python's grammar does not.
            if not closes_literal:
                yield comma
            comma = None
        if token.type == "COMMA":
            comma = token
        else:
            yield token
        before = token.type
    if comma is not None:
        yield comma


def _cut(text: str) -> Iterator[Token]:
    offset, before, signed = 0, "", False
    # One `-` before a number is its sign. Two or more are operators, and what follows them is a number without one.
    minus: Token | None = None
    while offset < len(text):
        found = _TOKEN.match(text, offset)
        if found is None:
            raise refuse(text, offset, _unknown(text[offset]))
        kind, value, start = found.lastgroup or "", found.group(), offset
        offset = found.end()
        if kind == "SKIP":
            continue
        if kind in ("IDENT", "PUNCTUATION"):
            kind = _GRAMMAR_NAMES.get(value, kind)
        if minus is not None:
            if kind in ("INT_LIT", "FLOAT_LIT"):
                value, start = f"-{value}", minus.start_pos or 0
            else:
                yield minus
            minus = None
        token = Token(kind, value, start)
        sign = kind == "MINUS" and before not in _ENDS_OPERAND
        if sign and not signed:
            minus = token
        else:
            yield token
        signed = sign
        before = kind
    if minus is not None:
        yield minus


def _unknown(character: str) -> str:
    if character == "=":
        return "'=' is not an operator; compare with '=='"
    if character in "\"'":
        return "this string is not closed, or holds an escape that CEL does not know"
    if character == "`":
        return "names in backquotes are not supported; write the name as an index, such as x['a-b']"
    return f"unexpected character {character!r}"


class CelLexer(Lexer):  # type: ignore[misc]  # lark is not typed here
    """The interface by which lark accepts a custom lexer."""

    def __init__(self, lexer_conf: Any) -> None:
        del lexer_conf  # the terminals of the grammar are not used

    def lex(self, data: Any) -> Iterator[Token]:
        """Tokenize the text that lark was given."""
        return tokens(str(data))
