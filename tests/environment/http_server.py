"""An HTTP server on loopback for the duration of a test."""

import contextlib
import http.server
import ssl
import threading
from collections.abc import Iterator

# Seconds. Every test with such a server waits until the server notices its end.
SECONDS_TO_NOTICE_ITS_END = 0.02


@contextlib.contextmanager
def serving(
    handler: type[http.server.BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve requests with a handler on a free port; yield host and port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(
        target=server.serve_forever, args=(SECONDS_TO_NOTICE_ITS_END,), daemon=True
    )
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
