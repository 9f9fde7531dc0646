"""The HTTP server of the fake: werkzeug's, with a thread per call."""

from typing import Any

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from fakes.aws.front import AwsFront


class _AwsHandler(WSGIRequestHandler):  # type: ignore[misc]
    """A handler without a log: the ledger has every call."""

    def log(self, *_: Any) -> None:
        pass


def make(host: str, port: int, front: AwsFront) -> BaseWSGIServer:
    """Return the server, on a free port if `port` is 0."""
    return make_server(host, port, front, threaded=True, request_handler=_AwsHandler)
