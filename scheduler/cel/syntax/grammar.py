"""The grammar of selectors: the grammar of cel-python with the missing parts of CEL.

cel-python supports neither optional syntax (`.?`, `[?`, `[?a]`, `{?k: v}`) nor a
trailing comma. Lark's `%extend` and `%override` add both to cel-python's own rules, so
its precedence levels and operators are not copied.
"""

from __future__ import annotations

from importlib import resources

from lark import Lark, Token, Transformer

from scheduler.cel.syntax.lexer import CelLexer

_EXTENSION = """
%extend member: member_optional_dot | member_optional_index
member_optional_dot: member "." "?" IDENT
member_optional_index: member "[" "?" expr "]"

%override list_lit: "[" [elements] [","] "]"
elements: element | elements "," element
element: expr
       | "?" expr -> optional_element

%override map_lit: "{" [entries] [","] "}"
entries: entry | entries "," entry
entry: expr ":" expr
     | "?" expr ":" expr -> optional_entry
"""


def build_parser(nodes: Transformer[Token, object]) -> Lark:
    """Build the parse tables, which takes a tenth of a second.

    Args:
        nodes: makes a node of each rule while the text is parsed.

    """
    celpy = (resources.files("celpy") / "cel.lark").read_text(encoding="utf-8")
    return Lark(
        celpy + _EXTENSION,
        parser="lalr",
        lexer=CelLexer,
        start="expr",
        maybe_placeholders=False,
        keep_all_tokens=True,
        priority="invert",
        transformer=nodes,
    )
