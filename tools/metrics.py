"""Print the size and the density of the code beside installed packages.

Rows of the repository are followed by rows of packages that its readers know. All
counts leave out imports and docstrings; rates are per 1,000 lines of code.
"""

import ast
import importlib.util
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = (
    "api_types",
    "scheduler",
    "activities",
    "workflows",
    "fleet_client",
    "client",
    "front",
    "testbed",
    "fakes",
    "worker.py",
)
ANCHORS = ("httpx", "temporalio", "pydantic", "attr", "_pytest")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
WIDE, WIDEST = 88, 100
LONG_FUNCTION, SHORT_MODULE = 60, 40
COLUMNS = (
    "modules",
    "lines",
    "statements",
    f"% over {WIDE}",
    f"over {WIDEST}",
    "comprehensions",
    "conditionals",
    f"functions over {LONG_FUNCTION}",
    f"modules under {SHORT_MODULE}",
)


def count(files: Iterable[Path]) -> Counter[str]:
    """Return the counts of all files together."""
    found: Counter[str] = Counter()
    for path in files:
        source = path.read_text(encoding="utf-8", errors="replace")
        lines = source.splitlines()
        found["modules"] += 1
        found["lines"] += len(lines)
        found["wide"] += sum(len(line) > WIDE for line in lines)
        found["widest"] += sum(len(line) > WIDEST for line in lines)
        found["short"] += len(lines) < SHORT_MODULE and path.stem != "__init__"
        for node in ast.walk(ast.parse(source)):
            found["statements"] += _is_statement(node)
            found["comprehensions"] += isinstance(node, COMPREHENSIONS)
            found["conditionals"] += isinstance(node, ast.IfExp)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                found["long"] += length > LONG_FUNCTION
    return found


def _is_statement(node: ast.AST) -> bool:
    if not isinstance(node, ast.stmt) or isinstance(node, ast.Import | ast.ImportFrom):
        return False
    is_docstring = (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
    return not is_docstring


def row(found: Counter[str]) -> tuple[str, ...]:
    """Return the cells of one row, in the order of the columns."""
    thousands = max(found["lines"], 1) / 1000
    return (
        f"{found['modules']:,}",
        f"{found['lines']:,}",
        f"{found['statements']:,}",
        f"{found['wide'] / thousands / 10:.1f}",
        f"{found['widest']:,}",
        f"{found['comprehensions'] / thousands:.1f}",
        f"{found['conditionals'] / thousands:.1f}",
        f"{found['long']:,}",
        f"{found['short']:,}",
    )


def files_of(package: str) -> list[Path]:
    """Return the tracked Python files of a package of this repository."""
    command = ["git", "ls-files", "--", package]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    names = listed.stdout.decode().splitlines()
    return [ROOT / name for name in names if name.endswith(".py")]


def installed(package: str) -> list[Path]:
    """Return the Python files of an installed package; none if it is missing."""
    found = importlib.util.find_spec(package)
    folders = found.submodule_search_locations if found else None
    paths = [path for folder in folders or () for path in Path(folder).rglob("*.py")]
    # Generated protocol buffers say nothing about the people who write code.
    return [path for path in paths if not path.stem.endswith(("_pb2", "_pb2_grpc"))]


def main() -> None:
    """Print one row per package, their sum, and the anchors."""
    total: Counter[str] = Counter()
    rows: list[tuple[str, ...]] = [("", *COLUMNS)]
    for package in PRODUCT:
        found = count(files_of(package))
        total += found
        rows.append((package, *row(found)))
    rows.append(("product", *row(total)))
    rows.append(("tests", *row(count(files_of("tests")))))
    rows.extend((package, *row(count(installed(package)))) for package in ANCHORS)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        padded = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
        print("  ".join(padded))


if __name__ == "__main__":
    main()
