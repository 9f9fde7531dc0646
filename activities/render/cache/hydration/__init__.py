"""The programs that fill a volume with weights, one per source.

Each is a constant text that reads environment variables only: no word of a user ever becomes part of a program or a shell line. They
leave with 41 (credentials refused), 42 (not found) or 43 (no space) where trying again cannot help, and with anything else where it
may.
"""

from importlib.resources import files

from activities.render.cache.hydration.oci import PROGRAM as OCI

HUGGINGFACE = files(__name__).joinpath("huggingface.py").read_text(encoding="utf-8")
FINAL_EXIT_CODES = (41, 42, 43)

__all__ = ["FINAL_EXIT_CODES", "HUGGINGFACE", "OCI"]
