"""The clients that a fake answers without a signature: programs of this machine.

A page in a browser of this machine can send requests here too. It sends its Origin, or
uses another host name.
"""

_HERE = ("127.0.0.1", "localhost")


def is_program(host: str, origin: str | None) -> bool:
    """Return whether a program of this machine sent a request, by its headers."""
    return origin is None and host.partition(":")[0] in _HERE
