"""The programs that fill a volume with weights, one per source.

Each is a constant text that reads environment variables only: no user input ever becomes part of a program or a shell line. They exit with
41 (credentials refused), 42 (not found) or 43 (no space) where a retry cannot help, and with anything else where it may.

The text is part of the Job that runs it, and so are the packages of the client with their hashes, which `make lock` writes. Neither
counts when two Jobs are compared, so a release with another text stops no download that runs: the next attempt has it.
"""

import ast
from importlib.resources import files

from activities.render.cache.hydration.oci import BY_TAG as OCI_BY_TAG
from activities.render.cache.hydration.oci import PROGRAM as OCI


def _packed(requirements: str) -> str:
    """Give a lock file with a line per package and no comments."""
    lines = requirements.replace("\\\n", "").splitlines()
    return "\n".join(" ".join(line.split()) for line in lines if line.strip() and not line.lstrip().startswith("#"))


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _program(name: str) -> str:
    """Give one text out of `common` and a program, whose imports of our packages are left out: the image of the Job has none of them."""
    text = _text(name)
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(__name__):
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return _text("common.py") + "".join(lines)


HUGGINGFACE = _program("huggingface.py")
CLIENT_REQUIREMENTS = _packed(_text("requirements.lock"))
S3 = _program("s3.py")
S3_REQUIREMENTS = _packed(_text("boto3.lock"))
FINAL_EXIT_CODES = (41, 42, 43)

__all__ = ["CLIENT_REQUIREMENTS", "FINAL_EXIT_CODES", "HUGGINGFACE", "OCI", "OCI_BY_TAG", "S3", "S3_REQUIREMENTS"]
