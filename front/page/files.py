"""The files of the page, and the responses that send them."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from fleet_client.advice import ADVICE, OF_EVERY_KIND
from front.page.accepting import prefers_html

FOLDER = Path(__file__).parent / "static"
PREFIX = "/ui/"
SETTINGS = f"{PREFIX}settings.json"
_PAGE = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_ADVICE = "advice.json"
# Only files from this server, no inline scripts or styles, requests to this server
# only. The page shows names and messages that users chose. If one is ever parsed as
# HTML, nothing in it runs, and with trusted types the browser refuses to parse it.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Browsers cache the files but revalidate them, so files of two releases never mix.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class _File:
    content: bytes
    content_type: str
    tag: str


class PageFiles:
    """The files, which are read once."""

    def __init__(self) -> None:
        self._files = {
            path.name: _read(path)
            for path in sorted(FOLDER.iterdir())
            if path.suffix in _TYPES
        }
        # The next step for each reason, which the command line prints as well.
        advice = json.dumps({**ADVICE, "all": OF_EVERY_KIND})
        self._files[_ADVICE] = _file(advice.encode(), ".json")

    def answer(self, request: web.Request, path: str) -> web.Response | None:
        """Return the response to a request for the page or one of its files.

        Returns None for other requests, such as a request for `/` from a program.
        """
        if request.method not in ("GET", "HEAD"):
            return None
        if path == "/":
            if prefers_html(request.headers.get("Accept", "")):
                return self._sent(request, _PAGE)
            return None
        name = path.removeprefix(PREFIX)
        if path.startswith(PREFIX) and name in self._files and name != _PAGE:
            return self._sent(request, name)
        return None

    def _sent(self, request: web.Request, name: str) -> web.Response:
        file = self._files[name]
        headers = {**_HEADERS, "ETag": file.tag, "Vary": "Accept"}
        known = request.headers.get("If-None-Match", "").split(",")
        if file.tag in [tag.strip().removeprefix("W/") for tag in known]:
            return web.Response(status=304, headers=headers)
        return web.Response(
            body=file.content, headers={**headers, "Content-Type": file.content_type}
        )


def _read(path: Path) -> _File:
    return _file(path.read_bytes(), path.suffix)


def _file(content: bytes, suffix: str) -> _File:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return _File(content, _TYPES[suffix], tag)
