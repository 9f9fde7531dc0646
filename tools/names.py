"""Find classes and modules with equal names.

A traceback, an editor tab and a search show only the last part of a name. A module
may repeat a name when it plays the same role for every kind.
"""

import argparse
import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROLES = frozenset(
    {
        "__init__",
        "__main__",
        "workflow",
        "state",
        "decisions",
        "orders",
        "dispatch",
        "status",
    }
)
"""Modules that play the same role wherever they stand."""
OUTSIDE = ("tests/", "tools/")
"""Folders whose names no reader of the product meets."""


def product() -> list[str]:
    """Return the paths of the product's modules."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, check=True
    )
    names = listed.stdout.decode().splitlines()
    return [
        name for name in names if name.endswith(".py") and not name.startswith(OUTSIDE)
    ]


def repeated_classes(names: list[str]) -> dict[str, list[str]]:
    """Return the modules of each class name that is defined more than once."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(name)
    return {key: places for key, places in sorted(found.items()) if len(places) > 1}


def repeated_modules(names: list[str]) -> dict[str, list[str]]:
    """Return the paths of each module name that is no role and is used again."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        stem = Path(name).stem
        if stem not in ROLES:
            found[stem].append(name)
    return {key: places for key, places in sorted(found.items()) if len(places) > 1}


def main() -> None:
    """Print repeated names; exit with 1 when a class name is not unique."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--modules", action="store_true", help="also list module names")
    options = parser.parse_args()
    names = product()
    if options.modules:
        modules = repeated_modules(names)
        for key, places in modules.items():
            print(f"module {key}: {', '.join(places)}")
        print(f"{len(modules)} module names are repeated")
    classes = repeated_classes(names)
    for key, places in classes.items():
        print(f"class {key}: {', '.join(places)}")
    if classes:
        sys.exit(f"{len(classes)} class names are repeated: rename these classes")
    print("class names are unique")


if __name__ == "__main__":
    main()
