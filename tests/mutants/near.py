"""Find the tests near a module, by their imports and folders, or by the lines that they ran."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from coverage import CoverageData

from tests.mutants.edits import ROOT

# Each further file at the same distance finds fewer mutants.
FILES_MAX = 16
# Beyond it nearly every test imports a module.
DISTANCE_MAX = 6


class Importing:
    """Finds test files by their imports, direct and through other modules."""

    def tests(self, module: str, line: int) -> list[str]:
        """Return the test files near a module, nearest first. Imports do not depend on the line."""
        del line
        distances = self._distances(module)
        stem = Path(module).stem

        def rank(file: str) -> tuple[bool, int, int, int, str]:
            # A shared folder weighs as much as an import: tests reach a module through the
            # package that it belongs to.
            shared = _shared_folders(module, file)
            return (stem not in file, distances[file] - shared, -shared, len(file), file)

        files = [file for file in distances if Path(file).name.startswith("test_")]
        return sorted(files, key=rank)[:FILES_MAX]

    def _distances(self, module: str) -> dict[str, int]:
        found, edge, distance = {module: 0}, [module], 0
        while edge and distance < DISTANCE_MAX:
            distance += 1
            edge = sorted({user for each in edge for user in self._users[each]} - set(found))
            found |= dict.fromkeys(edge, distance)
        return found

    @cached_property
    def _users(self) -> dict[str, set[str]]:
        """Map each file to the files that import it."""
        users: dict[str, set[str]] = defaultdict(set)
        for path in sorted(ROOT.rglob("*.py")):
            file = str(path.relative_to(ROOT))
            if not file.startswith("."):
                for imported in _imported(ast.parse(path.read_text())):
                    users[imported].add(file)
        return users


def _shared_folders(module: str, test: str) -> int:
    """Count the leading folders on which the paths of a module and a test agree."""
    pairs = zip(Path(module).parts[:-1], Path(test).parts[1:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from _files(node.module)
            for name in node.names:
                yield from _files(f"{node.module}.{name.name}")
        elif isinstance(node, ast.Import):
            for name in node.names:
                yield from _files(name.name)


def _files(name: str) -> Iterator[str]:
    path = name.replace(".", "/")
    for file in (f"{path}.py", f"{path}/__init__.py"):
        if (ROOT / file).is_file():
            yield file


class Covered:
    """Finds tests by the lines that they ran, from a coverage file with contexts."""

    def __init__(self, path: Path) -> None:
        self._data = CoverageData(str(path))
        self._data.read()
        self._files = {Path(each).as_posix(): each for each in self._data.measured_files()}

    def tests(self, module: str, line: int) -> list[str]:
        """Return the tests that ran a line, with the mirrored folder first."""
        (measured,) = [
            each for name, each in self._files.items() if name.endswith(f"/{module}")
        ] or [""]
        if not measured:
            return []
        contexts = self._data.contexts_by_lineno(measured).get(line, [])
        mirrored, stem = "tests/" + str(Path(module).parent), Path(module).stem
        tests = {context.partition("|")[0] for context in contexts if context}
        return sorted(
            tests,
            key=lambda each: (stem not in each, not each.startswith(mirrored), len(each), each),
        )
