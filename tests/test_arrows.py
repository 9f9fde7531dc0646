"""Imports point the way that ARCHITECTURE.md says."""

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports


def test_every_import_contract_is_kept() -> None:
    assert lint_imports(config_filename="pyproject.toml", no_cache=True) == EXIT_STATUS_SUCCESS
