"""URLs, parsed as Go's `net/url` does.

Python's `urllib.parse` accepts nearly every text as a URL, and Kubernetes does not. The
functions here follow Go's steps on bytes, because a URL may contain escaped bytes that
are not valid UTF-8.
"""

from __future__ import annotations

import ipaddress
import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.go_text import quoted
from scheduler.cel.runtime.values import MapValue, Opaque, string_map

_UNRESERVED = string.ascii_letters + string.digits + "-_.~"
# Characters that are not escaped in each part of a URL.
_HOST = frozenset((_UNRESERVED + "!$&'()*+,;=:[]<>\"").encode())
_PATH = frozenset((_UNRESERVED + "$&+,/:;=@").encode())
_USER = frozenset((_UNRESERVED + "$&+,;=").encode())
_FRAGMENT = frozenset((_UNRESERVED + "$&+,/:;=?@!()*").encode())
_VALID_PATH = _PATH | frozenset(b"!'()*[]%")
_VALID_FRAGMENT = _FRAGMENT | frozenset(b"'[]%")
_USERINFO = frozenset(string.ascii_letters + string.digits + "-._:~!$&'()*+,;=%@")
_HEX = frozenset(string.hexdigits.encode())
_SCHEME = frozenset(string.ascii_letters + string.digits + "+-.")
_DIGITS = frozenset(string.digits)
_ASCII_END = 0x80
_DELETE = 0x7F
_SPACE = 0x20
_PERCENT = ord("%")
_QUERY_PARAMETERS_MAX = 10_000


class UrlError(ValueError):
    """The text is not a URL."""


@dataclass(frozen=True, slots=True)
class Url(Opaque):
    """A URL with its parts unescaped, as bytes."""

    cel_type: ClassVar[str] = "kubernetes.URL"
    scheme: str = ""
    opaque: str = ""
    user: bytes | None = None
    password: bytes | None = None
    host: bytes = b""
    path: bytes = b""
    raw_path: str = ""
    query: str = ""
    has_query: bool = False
    omits_host: bool = False
    fragment: bytes = b""
    raw_fragment: str = ""

    @property
    def hostname(self) -> bytes:
        return self._host_and_port()[0]

    @property
    def port(self) -> bytes:
        return self._host_and_port()[1]

    def _host_and_port(self) -> tuple[bytes, bytes]:
        host, port = self.host, b""
        before, colon, after = host.rpartition(b":")
        if colon and _is_port(after):
            host, port = before, after
        if host.startswith(b"[") and host.endswith(b"]"):
            host = host[1:-1]
        return host, port

    @property
    def escaped_path(self) -> str:
        if self.path == b"*":
            return "*"
        return _as_written(self.raw_path, self.path, _PATH, _VALID_PATH)

    def same_as(self, other: Any) -> bool:
        return bool(self.text() == other.text())

    def text(self) -> str:
        """Return the URL as Go writes it, by which two URLs are compared."""
        made = f"{self.scheme}:" if self.scheme else ""
        made += self.opaque or self._hierarchy(is_first=not made)
        if self.has_query or self.query:
            made += f"?{self.query}"
        if self.fragment:
            written = self.raw_fragment
            made += (
                f"#{_as_written(written, self.fragment, _FRAGMENT, _VALID_FRAGMENT)}"
            )
        return made

    def _hierarchy(self, *, is_first: bool) -> str:
        made = ""
        named = bool(self.host) or self.user is not None
        if (self.scheme and not self.omits_host) or named:
            if named or self.path:
                made += "//"
            made += self._authority()
        path = self.escaped_path
        if path and not path.startswith("/") and self.host:
            made += "/"
        if is_first and not made and ":" in path.split("/", 1)[0]:
            made += "./"
        return made + path

    def _authority(self) -> str:
        made = ""
        if self.user is not None:
            made += _escape(self.user, _USER)
            if self.password is not None:
                made += f":{_escape(self.password, _USER)}"
            made += "@"
        return made + _escape(self.host, _HOST)


def _as_written(
    raw: str, value: bytes, safe: frozenset[int], valid: frozenset[int]
) -> str:
    """Return the text of a part: as it was written, if that is a valid encoding."""
    if raw and set(raw.encode()) <= valid and _unescape(raw) == value:
        return raw
    return _escape(value, safe)


def _escape(value: bytes, safe: frozenset[int]) -> str:
    return "".join(chr(byte) if byte in safe else f"%{byte:02X}" for byte in value)


def _unescape(text: str, *, plus_is_space: bool = False) -> bytes:
    """Replace escapes such as `%41` by their bytes.

    Raises:
        UrlError: an escape is incomplete.

    """
    data = text.encode()
    if plus_is_space:
        data = data.replace(b"+", b" ")
    first, *rest = data.split(b"%")
    made = [first]
    for piece in rest:
        if len(piece[:2]) < len(b"41") or not set(piece[:2]) <= _HEX:
            shown = (b"%" + piece[:2]).decode("utf-8", "replace")
            raise UrlError(f"invalid URL escape {quoted(shown)}")
        made += (bytes([int(piece[:2], 16)]), piece[2:])
    return b"".join(made)


def _unescape_host(text: str, *, is_zone: bool = False) -> bytes:
    """Unescape a host, in which only non-ASCII bytes may be escaped."""
    value = _unescape(text)
    at = 0
    data = text.encode()
    while at < len(data):
        byte = data[at]
        if byte == _PERCENT:
            escape = data[at : at + 3].upper()
            code = int(escape[1:], 16)
            allowed = escape == b"%25" or code >= _ASCII_END
            if is_zone:
                allowed = escape == b"%25" or code == _SPACE or code in _HOST
            if not allowed:
                raise UrlError(f"invalid URL escape {quoted(escape.decode())}")
            at += len(escape)
            continue
        if byte < _ASCII_END and byte not in _HOST:
            shown = quoted(chr(byte))
            raise UrlError(f"invalid character {shown} in host name")
        at += 1
    return value


def _is_port(text: bytes | str) -> bool:
    shown = text.decode("latin-1") if isinstance(text, bytes) else text
    return set(shown) <= _DIGITS


def _check_port(colon_port: str) -> None:
    if colon_port and (colon_port[0] != ":" or not _is_port(colon_port[1:])):
        raise UrlError(f"invalid port {quoted(colon_port)} after host")


def _host(text: str) -> bytes:
    opening = text.rfind("[")
    if opening > 0:
        raise UrlError("invalid IP-literal")
    if opening < 0:
        colon = text.rfind(":")
        if colon >= 0:
            _check_port(text[colon:])
        return _unescape_host(text)
    closing = text.rfind("]")
    if closing < 0:
        raise UrlError("missing ']' in host")
    _check_port(text[closing + 1 :])
    name = text[1:closing]
    zone = name.find("%25")
    if zone < 0:
        zone = len(name)
    address = _unescape_host(name[:zone]) + _unescape_host(name[zone:], is_zone=True)
    try:
        ipaddress.IPv6Address(address.decode("utf-8", "replace").partition("%")[0])
    except ValueError:
        raise UrlError("invalid host") from None
    if address.endswith(b"%"):
        raise UrlError("invalid host")
    return b"[" + address + b"]" + text[closing + 1 :].encode()


def _authority(text: str) -> tuple[bytes | None, bytes | None, bytes]:
    userinfo, at, host_text = text.rpartition("@")
    host = _host(host_text)
    if not at:
        return None, None, host
    if not set(userinfo) <= _USERINFO:
        raise UrlError("net/url: invalid userinfo")
    user, colon, password = userinfo.partition(":")
    unescaped = _unescape(user)
    return unescaped, _unescape(password) if colon else None, host


def _split_scheme(text: str) -> tuple[str, str]:
    scheme, colon, rest = text.partition(":")
    if not colon or not set(scheme) <= _SCHEME:
        return "", text
    if not scheme:
        raise UrlError("missing protocol scheme")
    if scheme[0] not in string.ascii_letters:
        return "", text
    return scheme.lower(), rest


def _parse(text: str, *, is_request: bool) -> Url:
    """Parse a URL without a fragment.

    A request URL has a scheme or begins with a slash.
    """
    if any(ord(character) < _SPACE or ord(character) == _DELETE for character in text):
        raise UrlError("net/url: invalid control character in URL")
    if not text and is_request:
        raise UrlError("empty url")
    if text == "*":
        return Url(path=b"*")
    scheme, rest = _split_scheme(text)
    rest, mark, query = rest.partition("?")
    has_query = bool(mark) and not query
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme, opaque=rest, query=query, has_query=has_query)
        if is_request:
            raise UrlError("invalid URI for request")
        if ":" in rest.split("/", 1)[0]:
            raise UrlError("first path segment in URL cannot contain colon")
    user, password, host, omits_host = None, None, b"", False
    relative = not is_request and not rest.startswith("///")
    if rest.startswith("//") and (scheme or relative):
        authority, slash, path = rest[2:].partition("/")
        user, password, host = _authority(authority)
        rest = slash + path
    elif scheme and rest.startswith("/"):
        omits_host = True
    path_bytes = _unescape(rest)
    raw_path = "" if _escape(path_bytes, _PATH) == rest else rest
    return Url(
        scheme,
        user=user,
        password=password,
        host=host,
        path=path_bytes,
        raw_path=raw_path,
        query=query,
        has_query=has_query,
        omits_host=omits_host,
    )


def check_request_url(text: str) -> None:
    """Check a URL as `isURL` does.

    Raises:
        UrlError: the text is not a URL; the message is that of Kubernetes.

    """
    try:
        _parse(text, is_request=True)
    except UrlError as error:
        raise UrlError(f"parse {quoted(text)}: {error}") from None


def parse_url(text: str) -> Url | EvalError:
    """Read a URL, as `url()` does."""
    try:
        check_request_url(text)
        before, _, fragment_text = text.partition("#")
        url = _parse(before, is_request=False)
        fragment = _unescape(fragment_text)
    except UrlError as error:
        return EvalError(f"{text!r} is not a URL: {error}")
    raw = "" if _escape(fragment, _FRAGMENT) == fragment_text else fragment_text
    return replace(url, fragment=fragment, raw_fragment=raw)


def _query(url: Url) -> MapValue | EvalError:
    """Return the values of each parameter, without malformed parameters."""
    found: dict[str, list[str]] = {}
    pieces = url.query.split("&")
    if len(pieces) > _QUERY_PARAMETERS_MAX:
        return string_map({})
    for piece in pieces:
        if not piece or ";" in piece:
            continue
        key, _, value = piece.partition("=")
        try:
            key_bytes = _unescape(key, plus_is_space=True)
            value_bytes = _unescape(value, plus_is_space=True)
        except UrlError:
            continue
        key_text, value_text = _text(key_bytes), _text(value_bytes)
        if isinstance(key_text, EvalError) or isinstance(value_text, EvalError):
            return _NO_TEXT
        found.setdefault(key_text, []).append(value_text)
    return string_map(found)


_NO_TEXT = EvalError("a part of the URL is no UTF-8 text")


def _text(value: bytes) -> str | EvalError:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _NO_TEXT


def _of_url(answer: Callable[[Url], Any]) -> Callable[[Any], Any]:
    def guarded(url: Any) -> Any:
        if type(url) is not Url:
            return EvalError("no such overload: the value is no URL")
        found = answer(url)
        return _text(found) if type(found) is bytes else found

    return guarded


def _url(text: Any) -> Any:
    if type(text) is not str:
        return EvalError("no such overload: the argument is no string")
    return parse_url(text)


def _is_url(text: Any) -> Any:
    if type(text) is not str:
        return EvalError("no such overload: the argument is no string")
    try:
        check_request_url(text)
    except UrlError:
        return False
    return True


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "url": _url,
    "isURL": _is_url,
    "getScheme": _of_url(lambda url: url.scheme),
    "getHost": _of_url(lambda url: url.host),
    "getHostname": _of_url(lambda url: url.hostname),
    "getPort": _of_url(lambda url: url.port),
    "getEscapedPath": _of_url(lambda url: url.escaped_path),
    "getQuery": _of_url(_query),
}
