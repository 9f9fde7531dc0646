"""Measure the English of docstrings, comments, strings and documents.

The index counts headless clauses ("what", "who", "that of", "those that" in place of
a noun), archaic words and docstrings that begin with "Give", per 1,000 words.
temporalio, httpx, attrs, structlog, pytest and pydantic have 0.5 to 2.5. A question or
an ordinary use counts as well, so the index is a thermometer and judges no single
sentence. `python -m tools.prose --worst 40 front` prints the texts with most matches.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

LIMIT = 3.0
"""Matches per 1,000 words that a package, or a group of documents, may have."""
SHORT_WORDS = 200
"""Groups with fewer words are not judged: one match would exceed the limit."""
NOT_JUDGED = ("strings of tests", "tools")

SENTENCE_WORDS = 4
"""A string literal with at least so many words is a text for users."""

ROOT = Path(__file__).parents[1]
PATTERNS = (
    re.compile(
        r"\b(?:what|whatever|who|whoever|whom)\b"
        r"(?!\s+(?:is|are)\s+(?:the|a)\b)(?![^.!?]*\?)",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:that|those|ones?) (?:of|which|that|who)\b|\bof which\b|\bof whom\b",
        re.IGNORECASE,
    ),
    re.compile(
        r"\bbe it\b|\banew\b|\bfor want of\b|\bis that of\b|\bof before\b"
        r"|\bnothing that\b|\bnone that\b",
        re.IGNORECASE,
    ),
    re.compile(r"^Give\b"),
)


class Text(NamedTuple):
    """A text, the group that it counts for, and where it stands."""

    group: str
    place: str
    words: str

    @property
    def matches(self) -> int:
        return sum(len(pattern.findall(self.words)) for pattern in PATTERNS)


def texts_of(path: Path, name: str) -> Iterator[Text]:
    """Return the texts of a file; `name` is its path inside the repository."""
    source = path.read_text(encoding="utf-8", errors="replace")
    package = name.split("/", maxsplit=1)[0]
    if path.suffix == ".md":
        prose = re.sub(r"```.*?```|`[^`]*`", " ", source, flags=re.DOTALL)
        for part in prose.split("\n\n"):
            yield Text(package, name, part)
        return
    if path.suffix == ".js":
        yield from _script_texts(source, name)
        return
    tree = ast.parse(source)
    docstrings = dict(_docstrings(tree))
    for line, words in docstrings.items():
        yield Text(package, f"{name}:{line}", words)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(package, f"{name}:{token.start[0]}", token.string.lstrip("# "))
    for line, words in _strings(tree, set(docstrings)):
        yield Text(f"strings of {package}", f"{name}:{line}", words)


# A block comment, a line comment that begins its line, and both kinds of strings.
_SCRIPT = re.compile(
    r"/\*\*?(.*?)\*/|^\s*//(.*?)$|\"([^\"\n]*)\"|`([^`]*)`", re.DOTALL | re.MULTILINE
)


def _script_texts(source: str, name: str) -> Iterator[Text]:
    """Return the comments and the sentences of the page's JavaScript."""
    for match in _SCRIPT.finditer(source):
        comment = match[1] or match[2]
        words = comment or match[3] or match[4] or ""
        line = source.count("\n", 0, match.start()) + 1
        if comment or len(words.split()) >= SENTENCE_WORDS:
            group = "page" if comment else "strings of the page"
            yield Text(group, f"{name}:{line}", words)


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if not isinstance(statement, ast.Expr):
                continue
            value = statement.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value


def _strings(tree: ast.Module, docstrings: set[int]) -> Iterator[tuple[int, str]]:
    """Return the line and the words of each sentence, with `x` for inserted values."""
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside.update(node.values)
            parts = [
                str(part.value) if isinstance(part, ast.Constant) else "x"
                for part in node.values
            ]
            text = "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node in inside or node.lineno in docstrings:
                continue
            text = node.value
        else:
            continue
        if len(text.split()) >= SENTENCE_WORDS:
            yield node.lineno, text


def tracked(paths: Iterable[str]) -> list[str]:
    """Return the code files and documents of the repository under these paths."""
    command = ["git", "ls-files", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    names = listed.stdout.decode().splitlines()
    return [name for name in names if name.endswith((".py", ".md", ".js"))]


def indexes(texts: Iterable[Text]) -> dict[str, tuple[float, int]]:
    """Return the index and the number of words of each group."""
    words: dict[str, int] = defaultdict(int)
    matches: dict[str, int] = defaultdict(int)
    for text in texts:
        words[text.group] += len(text.words.split())
        matches[text.group] += text.matches
    return {
        group: (1000 * matches[group] / max(count, 1), count)
        for group, count in sorted(words.items())
    }


def main() -> None:
    """Print the index of each group; exit with 1 when a group exceeds the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--worst", type=int, default=0, metavar="N")
    arguments = parser.parse_args()
    texts = [
        text
        for name in tracked(arguments.paths)
        if (ROOT / name).exists()
        for text in texts_of(ROOT / name, name)
    ]
    exceeded = False
    for group, (index, count) in indexes(texts).items():
        # Tests quote broken input, and this file quotes the words that it counts.
        is_judged = count >= SHORT_WORDS and group not in NOT_JUDGED
        too_high = is_judged and index > LIMIT
        exceeded |= too_high
        mark = "  above the limit" if too_high else ""
        print(f"{index:6.1f} per 1,000 words {count:9,} words  {group}{mark}")
    for text in sorted(texts, key=lambda each: -each.matches)[: arguments.worst]:
        if text.matches:
            print(f"{text.matches} {text.place}: {' '.join(text.words.split())[:200]}")
    if exceeded:
        sys.exit(f"rewrite sentences until each index is at most {LIMIT}")


if __name__ == "__main__":
    main()
