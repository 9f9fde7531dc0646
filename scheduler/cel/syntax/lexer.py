"""Tokens of CEL, split exactly as the grammar of cel-go does.

The terminals of cel-python's grammar are less strict than CEL's: they accept unknown
escapes and end some raw strings in the wrong place. A selector that is parsed
differently here than in the workload cluster may match other devices. So this module
tokenizes by the rules of CEL and passes the tokens to the parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lark import Token
from lark.lexer import Lexer

from scheduler.cel.errors import SelectorError

_ESCAPE = (
    r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}"""
    r"""|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
)

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
    | (?P<FLOAT_LIT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?
        |[0-9]+[eE][+-]?[0-9]+
        |\.[0-9]+(?:[eE][+-]?[0-9]+)?)
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
    """Return the offset after the token at `at`, or `at` if no token begins there."""
    token = _TOKEN.match(text, at)
    return token.end() if token else at


# Keywords for which cel-python's grammar has patterns.
_KEYWORDS = {"true": "BOOL_LIT", "false": "BOOL_LIT", "null": "NULL_LIT"}

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

# After one of these tokens a `-` is the subtraction operator. Elsewhere it is a sign.
_ENDS_OPERAND = frozenset(
    {
        "IDENT",
        "INT_LIT",
        "UINT_LIT",
        "FLOAT_LIT",
        "STRING_LIT",
        "BYTES_LIT",
        "BOOL_LIT",
        "NULL_LIT",
        "RPAR",
        "RSQB",
        "RBRACE",
    },
)


def place(text: str, offset: int) -> tuple[int, int]:
    """Return line and column of a character, both 1-based."""
    line_start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset) + 1, offset - line_start + 1


def refuse(text: str, offset: int, problem: str) -> SelectorError:
    """Return the error for a problem at an offset of `text`."""
    line, column = place(text, offset)
    return SelectorError(problem, line=line, column=column)


def tokens(text: str, names: Mapping[str, str]) -> Iterator[Token]:
    """Split `text` into the terminals of the grammar.

    Args:
        text: a selector.
        names: the grammar's names of operators, punctuation and keywords.

    Raises:
        SelectorError: a character or literal that is not CEL.

    """
    offset, before, signed = 0, "", False
    # A single `-` before a number is its sign. Two or more are operators, and the
    # number after them has no sign.
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
            kind = names.get(value, kind)
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
    """The lexer that lark uses instead of its own."""

    def __init__(self, lexer_conf: Any) -> None:
        # The texts of the grammar's terminals are operators, punctuation and `in`. Lark
        # chooses the names of most of them.
        self._names = dict(_KEYWORDS)
        for terminal in lexer_conf.terminals:
            if terminal.pattern.type == "str":
                self._names[terminal.pattern.value] = terminal.name

    def lex(self, data: Any) -> Iterator[Token]:
        """Tokenize the text that lark passes."""
        return tokens(str(data), self._names)
