"""The programs that fill a volume with weights, one per source.

Each is a constant text that reads environment variables only: no user input ever becomes part of a program or a shell line. They exit with
41 (credentials refused), 42 (not found) or 43 (no space) where a retry cannot help, and with anything else where it may.

The text is part of the Job that runs it. Any change, of a comment too, is another Job: caches that are being staged start again.
"""

from importlib.resources import files

from activities.render.cache.hydration.oci import PROGRAM as OCI

HUGGINGFACE = files(__name__).joinpath("huggingface.py").read_text(encoding="utf-8")
FINAL_EXIT_CODES = (41, 42, 43)

__all__ = ["FINAL_EXIT_CODES", "HUGGINGFACE", "OCI"]
