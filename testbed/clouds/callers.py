"""Who may ask a fake for what nothing is signed for: programs of this machine.

A page in a browser of this machine can send requests here too. It says its origin, or comes under the name of a host of its own.
"""

_HERE = ("127.0.0.1", "localhost")


def is_program(host: str, origin: str | None) -> bool:
    """Tell by the headers Host and Origin of a request whether a program of this machine sent it."""
    return origin is None and host.partition(":")[0] in _HERE
