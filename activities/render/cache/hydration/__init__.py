"""The programs that fill a volume with weights, one per source.

Each program is a constant text that reads only environment variables: no user input
becomes part of a program or a shell line. A program exits with 41 (credentials
refused), 42 (not found) or 43 (no space) where a retry cannot help, and with another
code where it may.

The text is part of the Job that runs it, and so are the packages of the client with
their hashes, which `make lock` writes. Neither counts when two Jobs are compared, so a
release with another text does not stop a running download. The next attempt uses the
new text.
"""

import ast
from importlib.resources import files

from activities.render.cache.hydration.oci import BY_TAG as OCI_BY_TAG
from activities.render.cache.hydration.oci import PROGRAM as OCI


def _packed(requirements: str) -> str:
    """Return a lock file with one line per package and no comments."""
    lines = requirements.replace("\\\n", "").splitlines()
    return "\n".join(
        " ".join(line.split())
        for line in lines
        if line.strip() and not line.lstrip().startswith("#")
    )


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _program(name: str) -> str:
    """Return one text of `common` and a program.

    The program's imports of our packages are left out, because the Job's image does not
    contain them.
    """
    text = _text(name)
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            __name__
        ):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (
                (node.end_lineno or node.lineno) - node.lineno + 1
            )
    return _text("common.py") + "".join(lines)


HUGGINGFACE = _program("huggingface.py")
CLIENT_REQUIREMENTS = _packed(_text("requirements.lock"))
S3 = _program("s3.py")
S3_REQUIREMENTS = _packed(_text("boto3.lock"))
FINAL_EXIT_CODES = (41, 42, 43)

__all__ = [
    "CLIENT_REQUIREMENTS",
    "FINAL_EXIT_CODES",
    "HUGGINGFACE",
    "OCI",
    "OCI_BY_TAG",
    "S3",
    "S3_REQUIREMENTS",
]
