"""The files of the page, as they are installed with this package, and the answers that carry them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

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
}
# Only files from here, no script or style inside the HTML, requests to this server alone. Names and messages that the page shows are
# those of users: should one ever be read as HTML, nothing in it runs, and with trusted types the browser refuses to read it at all.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Kept, and asked for again each time: files of two releases never come together.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class _File:
    content: bytes
    content_type: str
    tag: str


class Page:
    """The files, read once."""

    def __init__(self) -> None:
        self._files = {path.name: _read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in _TYPES}

    def answer(self, request: web.Request, path: str) -> web.Response | None:
        """Answer a request for the page or one of its files; None for all others, those for `/` by programs among them."""
        if request.method not in ("GET", "HEAD"):
            return None
        if path == "/":
            return self._sent(request, _PAGE) if prefers_html(request.headers.get("Accept", "")) else None
        name = path.removeprefix(PREFIX)
        return self._sent(request, name) if path.startswith(PREFIX) and name in self._files and name != _PAGE else None

    def _sent(self, request: web.Request, name: str) -> web.Response:
        file = self._files[name]
        headers = {**_HEADERS, "ETag": file.tag, "Vary": "Accept"}
        if file.tag in [tag.strip().removeprefix("W/") for tag in request.headers.get("If-None-Match", "").split(",")]:
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.content, headers={**headers, "Content-Type": file.content_type})


def _read(path: Path) -> _File:
    content = path.read_bytes()
    return _File(content, _TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
