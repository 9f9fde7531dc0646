"""Files for commands that read manifests."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    """Write a manifest to a file; return its path."""

    def write(text: str) -> str:
        file = tmp_path / f"{uuid.uuid4().hex}.json"
        file.write_text(text)
        return str(file)

    return write
