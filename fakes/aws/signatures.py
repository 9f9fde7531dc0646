"""AWS signatures, version 4: of requests, and of tokens for an EKS cluster.

A token is a signed URL.
"""

import base64
import binascii
import calendar
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

from fakes.aws.account import AccessKey

TOKEN_PREFIX = "k8s-aws-v1."  # noqa: S105 -- public: every token begins so
CLUSTER_HEADER = "x-k8s-aws-id"
TOKEN_SECONDS = 15 * 60
"""How long a cluster accepts a token after its signature."""
EXPIRES_SECONDS_MAX = 15 * 60

_ALGORITHM = "AWS4-HMAC-SHA256"
_EMPTY = hashlib.sha256(b"").hexdigest()
_AUTHORIZATION = re.compile(
    rf"^{_ALGORITHM} Credential=([^,\s]+),\s*SignedHeaders=([^,\s]+),\s*Signature=([0-9a-f]+)$"
)
_STS_HOST = re.compile(r"^sts(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?$")
_TOKEN_PARAMETERS = frozenset(
    {
        "action",
        "version",
        "x-amz-algorithm",
        "x-amz-credential",
        "x-amz-date",
        "x-amz-expires",
        "x-amz-security-token",
        "x-amz-signature",
        "x-amz-signedheaders",
    }
)


class TokenRefused(Exception):
    """A token that a cluster refuses.

    The message has the reason, and no part of the token.
    """


@dataclass(frozen=True)
class Scope:
    """The scope of a signature besides the key: day, region and service."""

    access_key: str
    day: str
    region: str
    service: str

    @classmethod
    def parse(cls, text: str) -> "Scope":
        """Parse a scope. Raise ValueError."""
        access_key, day, region, service, end = text.split("/")
        if end != "aws4_request":
            raise ValueError("the credential does not end in aws4_request")
        return cls(access_key, day, region, service)


@dataclass(frozen=True)
class AwsAuthorization:
    """The authorization of a request."""

    scope: Scope
    headers: tuple[str, ...]
    signature: str


def authorization(header: str) -> AwsAuthorization:
    """Parse an Authorization header. Raise ValueError if it is not of version 4."""
    matched = _AUTHORIZATION.match(header)
    if matched is None:
        raise ValueError("the request is not signed with version 4")
    credential, headers, signature = matched.groups()
    return AwsAuthorization(
        Scope.parse(credential), tuple(headers.split(";")), signature
    )


def signature_of(
    *,
    method: str,
    path: str,
    query: Sequence[tuple[str, str]],
    headers: Mapping[str, str],
    payload: str,
    scope: Scope,
    date: str,
    secret_key: str,
) -> str:
    """Return the signature of a request.

    `path` is the path as sent, `headers` are the signed ones in lower case, and
    `payload` is its SHA-256.
    """
    # Only S3 uses the path unchanged.
    canonical = "\n".join(
        [
            method,
            quote(path or "/", safe="/~"),
            "&".join(
                sorted(
                    f"{quote(key, safe='-_.~')}={quote(value, safe='-_.~')}"
                    for key, value in query
                )
            ),
            *(f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers)),
            "",
            ";".join(sorted(headers)),
            payload,
        ]
    )
    within = f"{scope.day}/{scope.region}/{scope.service}/aws4_request"
    text = "\n".join(
        [_ALGORITHM, date, within, hashlib.sha256(canonical.encode()).hexdigest()]
    )
    key = f"AWS4{secret_key}".encode()
    for part in (scope.day, scope.region, scope.service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class AwsIdentity:
    """The identity of a token."""

    principal: str
    access_key: str


def verify_token(
    token: str,
    cluster: str,
    known: Callable[[str], AccessKey | None],
    now: float | None = None,
) -> AwsIdentity:
    """Check a token for a cluster as the authenticator of EKS does.

    It compares with `known` instead of asking STS. `now` is in seconds since 1970; the
    default is the clock's. Raise TokenRefused.
    """
    parts = urlsplit(_address(token))
    if (
        parts.scheme != "https"
        or not _STS_HOST.match(parts.netloc)
        or parts.path not in ("", "/")
    ):
        raise TokenRefused("the token is no address of STS")
    query = parse_qsl(parts.query, keep_blank_values=True)
    values = {key.lower(): value for key, value in query}
    if len(values) != len(query) or not _TOKEN_PARAMETERS.issuperset(values):
        raise TokenRefused(
            "the token has parameters that do not belong there, or twice"
        )
    if values.get("action") != "GetCallerIdentity":
        raise TokenRefused("the token is for another action than GetCallerIdentity")
    if values.get("x-amz-signedheaders") != f"host;{CLUSTER_HEADER}":
        raise TokenRefused(f"the signed headers are not host and {CLUSTER_HEADER}")
    scope, date = _scope(values), values.get("x-amz-date", "")
    _in_time(date, values.get("x-amz-expires", ""), time.time() if now is None else now)
    credential = known(scope.access_key)
    if credential is None:
        raise TokenRefused("the key of the token is not known")
    if values.get("x-amz-security-token") != credential.session_token:
        raise TokenRefused("the session of the token is not that of its key")
    unsigned = [
        (key, value) for key, value in query if key.lower() != "x-amz-signature"
    ]
    headers = {"host": parts.netloc, CLUSTER_HEADER: cluster}
    wanted = signature_of(
        method="GET",
        path=parts.path,
        query=unsigned,
        headers=headers,
        payload=_EMPTY,
        scope=scope,
        date=date,
        secret_key=credential.secret_key,
    )
    if not hmac.compare_digest(wanted, values.get("x-amz-signature", "")):
        raise TokenRefused(
            "the signature is wrong: another secret key, or another cluster"
        )
    return AwsIdentity(credential.principal, credential.access_key)


def _address(token: str) -> str:
    if not token.startswith(TOKEN_PREFIX):
        raise TokenRefused(f"the token does not begin with {TOKEN_PREFIX}")
    encoded = token.removeprefix(TOKEN_PREFIX)
    if "=" in encoded:
        raise TokenRefused("the token is padded")
    try:
        return base64.b64decode(
            encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True
        ).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise TokenRefused("the token is not Base64") from error


def _scope(values: Mapping[str, str]) -> Scope:
    try:
        scope = Scope.parse(values.get("x-amz-credential", ""))
    except ValueError as error:
        raise TokenRefused("the credential of the token cannot be read") from error
    if scope.service != "sts":
        raise TokenRefused("the token is signed for another service than sts")
    return scope


def _in_time(date: str, expires: str, now: float) -> None:
    try:
        signed = calendar.timegm(time.strptime(date, "%Y%m%dT%H%M%SZ"))
    except ValueError as error:
        raise TokenRefused("the date of the token cannot be read") from error
    if not expires.isdigit() or not 0 <= int(expires) <= EXPIRES_SECONDS_MAX:
        raise TokenRefused("the token expires later than STS allows")
    if not signed - TOKEN_SECONDS <= now <= signed + TOKEN_SECONDS:
        raise TokenRefused("the token is too old, or from the future")
