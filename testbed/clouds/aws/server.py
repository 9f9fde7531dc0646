"""The HTTP server of the fake: werkzeug's, each call in a thread of its own."""

from typing import Any

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from testbed.clouds.aws.front import Front


class _Handler(WSGIRequestHandler):  # type: ignore[misc]
    """A handler that writes no log: the ledger has every call."""

    def log(self, *_: Any) -> None:
        """Write nothing."""


def make(host: str, port: int, front: Front) -> BaseWSGIServer:
    """Make the server, on a free port where `port` is 0."""
    return make_server(host, port, front, threaded=True, request_handler=_Handler)
