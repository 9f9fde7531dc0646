"""The packages that the worker imports. Import-linter cannot check a single module."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {folder.parent.name for folder in ROOT.glob("*/__init__.py")}


def test_the_worker_imports_neither_the_command_line_nor_the_front_nor_the_testbed() -> (
    None
):
    imported: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / "worker.py").read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    packages = {name.partition(".")[0] for name in imported} & PACKAGES
    assert packages == {
        "activities",
        "api_types",
        "fleet_client",
        "scheduler",
        "workflows",
    }
