"""The programs that fill a volume with weights, one per source.

Each is a constant text that reads environment variables only: no user input ever becomes part of a program or a shell line. They exit with
41 (credentials refused), 42 (not found) or 43 (no space) where a retry cannot help, and with anything else where it may.

The text is part of the Job that runs it, and so are the packages of the hub's client with their hashes, which `make lock` writes. Neither
counts when two Jobs are compared, so a release with another text stops no download that runs: the next attempt has it.
"""

from importlib.resources import files

from activities.render.cache.hydration.oci import PROGRAM as OCI


def _packed(requirements: str) -> str:
    """Give a lock file with a line per package and no comments."""
    lines = requirements.replace("\\\n", "").splitlines()
    return "\n".join(" ".join(line.split()) for line in lines if line.strip() and not line.lstrip().startswith("#"))


HUGGINGFACE = files(__name__).joinpath("huggingface.py").read_text(encoding="utf-8")
CLIENT_REQUIREMENTS = _packed(files(__name__).joinpath("requirements.lock").read_text(encoding="utf-8"))
FINAL_EXIT_CODES = (41, 42, 43)

__all__ = ["CLIENT_REQUIREMENTS", "FINAL_EXIT_CODES", "HUGGINGFACE", "OCI"]
