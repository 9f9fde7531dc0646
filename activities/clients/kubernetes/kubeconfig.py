"""Read a kubeconfig as untrusted input.

The usual loaders run plugins, open the files that the kubeconfig names, and trust the
server that it points to. Here a kubeconfig may contain values only: an https server, an
inline certificate authority, and a token or an inline client certificate. Entries are
rejected that would make the worker run a program, read its own files, skip TLS
verification or connect to itself. One message lists all problems, and no message
contains a credential.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from activities.clients.kubernetes.redact import redact
from activities.clients.outward.addresses import api_server_rules
from api_types.errors import CredentialsInvalid
from api_types.sections.clusters import KubeconfigSettings
from api_types.text.reader import Unreadable, read_one

_SIZE_MAX = 1 << 20
# A kubeconfig with two hundred clusters has half as many.
_VALUES_MAX = 10_000
# The trust store of an operating system has about 150.
_CERTIFICATES_MAX = 250
_KEY_CHARACTERS_MAX = 64 * 1024
_NAME = re.compile(r"[\w.@:/-]{1,128}", re.ASCII)
_NAME_SEPARATORS = re.compile(r"[_.@:/-]")
_NAME_PART_MAX = 24
_RANDOM_MAX = 12
_TOKEN = re.compile(r"[!-~]+")
_HOST = re.compile(r"[A-Za-z0-9.:-]{1,253}")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE_FIELDS = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
}


@dataclass(frozen=True)
class ExecPlugin:
    """A credential plugin that the operator allows."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"


class TokenSource(Protocol):
    """Tokens of a cloud for one of its clusters."""

    async def __call__(self, seconds: float, *, refused: str = "") -> tuple[str, float]:
        """Return a token and its expiry in seconds since 1970.

        The token is valid for at least `seconds`, or is the newest one, and differs
        from `refused`. Raises CredentialsInvalid.
        """


@dataclass(frozen=True)
class ApiServerAccess:
    """The access to one API server.

    `server` is its base URL without a trailing slash. Certificates and keys are PEM
    text. `name` is the name of the cluster in its kubeconfig. `tokens` are tokens of a
    cloud, created with the credential that `identity` describes for users. `doubted` is
    called when connecting to the server fails, because its address may have changed.
    """

    server: str
    authority: str = ""
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    server_name: str = ""
    name: str = ""
    plugin: ExecPlugin | None = None
    allow_loopback: bool = False
    tokens: TokenSource | None = field(default=None, repr=False)
    identity: str = ""
    doubted: Callable[[], None] | None = field(default=None, repr=False)


def parse_kubeconfig(
    text: str, settings: KubeconfigSettings, subject: str, *, without_user: bool = False
) -> ApiServerAccess:
    """Return the access that the current context of a kubeconfig describes.

    `subject` names the kubeconfig in messages. With `without_user` its user is not
    read. This takes up to a second for the longest text, so do not call it in an event
    loop. Raises CredentialsInvalid with every problem.
    """
    return _Reader(settings, subject).read(text, without_user=without_user)


class _Reader:
    """Reads one kubeconfig and collects every problem before it raises."""

    def __init__(self, settings: KubeconfigSettings, subject: str) -> None:
        self._settings = settings
        self._subject = subject
        self._problems: list[str] = []

    def read(self, text: str, *, without_user: bool) -> ApiServerAccess:
        document = self._document(text)
        context_name = document.get("current-context")
        if not context_name:
            self._problems.append("current-context is not set")
        context = self._named(document, "contexts", "context", context_name)
        cluster: Mapping[str, Any] = {}
        user: Mapping[str, Any] = {}
        if context:
            cluster = self._named(
                document, "clusters", "cluster", context.get("cluster")
            )
        if context and not without_user:
            user = self._named(document, "users", "user", context.get("user"))
        self._refuse_indirections("clusters", cluster)
        self._refuse_indirections("users", user)
        server = self._server(cluster) if context else ""
        authority = self._pem(cluster, "certificate-authority-data", "clusters")
        certificate = self._pem(user, "client-certificate-data", "users")
        key = self._pem(user, "client-key-data", "users")
        if bool(certificate) != bool(key):
            self._problems.append(
                "client-certificate-data and client-key-data must be given together"
            )
        self._check_pems(authority, certificate, key)
        token = self._matching(user, "token", _TOKEN)
        server_name = self._matching(cluster, "tls-server-name", _HOST)
        plugin = self._plugin(user)
        token = token or self._auth_provider_token(user)
        if (
            context
            and not self._problems
            and not (token or certificate or plugin or without_user)
        ):
            self._problems.append(
                "the user has neither a token nor a client certificate, "
                "so every request would be anonymous"
            )
        self._raise_problems()
        return ApiServerAccess(
            server=server,
            authority=authority,
            certificate=certificate,
            key=key,
            token=token,
            server_name=server_name,
            name=str(context.get("cluster", "")),
            plugin=plugin,
            allow_loopback=self._settings.allow_loopback,
        )

    def _document(self, text: str) -> Mapping[str, Any]:
        if len(text) > _SIZE_MAX:
            self._problems.append(f"is larger than {_SIZE_MAX} characters")
            self._raise_problems()
        try:
            document = read_one(text, _VALUES_MAX)
        except Unreadable as error:
            # Use only line and reason, because the whole error quotes the text, which
            # may be a key.
            self._problems.append(f"line {error.line}: {error.reason}")
            document = None
        if document is not None and not isinstance(document, Mapping):
            self._problems.append(
                "is not a kubeconfig: a mapping with clusters, contexts and users is "
                "expected"
            )
        elif document is None and not self._problems:
            self._problems.append("is empty")
        self._raise_problems()
        found: Mapping[str, Any] = document
        return found

    def _named(
        self, document: Mapping[str, Any], group: str, kind: str, name: object
    ) -> Mapping[str, Any]:
        if not name:
            return {}
        if not isinstance(name, str):
            self._problems.append(f"the name of the {kind} to use must be text")
            return {}
        entries = document.get(group)
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, Mapping) and entry.get("name") == name:
                found = entry.get(kind)
                if isinstance(found, Mapping):
                    return found
                break
        self._problems.append(f"{group} has no usable entry named {_shown(name)}")
        return {}

    def _refuse_indirections(self, group: str, entry: Mapping[str, Any]) -> None:
        where = {"clusters": "cluster", "users": "user"}[group]
        for file in _FILE_FIELDS[group]:
            if entry.get(file):
                inline = "token" if file == "tokenFile" else f"{file}-data"
                self._problems.append(
                    f"{where}.{file} is a file path, which is never read; "
                    f"put the content into {inline}"
                )
        if entry.get("insecure-skip-tls-verify"):
            self._problems.append(
                f"{where}.insecure-skip-tls-verify is refused; "
                "put the authority into certificate-authority-data"
            )
        if entry.get("proxy-url"):
            self._problems.append(
                f"{where}.proxy-url is refused; "
                "let the worker's own environment name a proxy"
            )
        if entry.get("username") or entry.get("password"):
            self._problems.append(
                f"{where}.username and {where}.password are no longer served by "
                "Kubernetes; use a token or a certificate"
            )
        for plugin in ("exec", "auth-provider"):
            if entry.get(plugin) and not self._settings.allow_exec:
                self._problems.append(
                    f"{where}.{plugin} would run a program or fetch tokens on the "
                    "worker; give a token or an inline client certificate "
                    "(an operator may set kubeconfig.allowExec)"
                )

    def _server(self, cluster: Mapping[str, Any]) -> str:
        server = self._text(cluster, "server").rstrip("/")
        if not server:
            if cluster:
                self._problems.append("cluster.server is not set")
            return ""
        if " " in server or not server.isprintable():
            self._problems.append("cluster.server is not a URL")
            return ""
        try:
            parts = urlsplit(server)
            host, _ = (parts.hostname or "").rstrip("."), parts.port
        except ValueError:
            self._problems.append("cluster.server is not a URL")
            return ""
        if parts.username or parts.password:
            self._problems.append(
                "cluster.server must not hold a user name or password"
            )
        elif parts.scheme != "https":
            self._problems.append(
                f"cluster.server {_shown(server)} must begin with https://"
            )
        if parts.query or parts.fragment:
            self._problems.append("cluster.server must have neither query nor fragment")
        reason = ""
        if host:
            rules = api_server_rules(allow_loopback=self._settings.allow_loopback)
            reason = rules.refused_host(host)
        if not host:
            self._problems.append("cluster.server names no host")
        elif reason:
            self._problems.append(f"cluster.server: {reason}")
        return server

    def _text(self, entry: Mapping[str, Any], name: str) -> str:
        value = entry.get(name)
        if value is None or isinstance(value, str):
            return (value or "").strip()
        self._problems.append(f"{name} must be text")
        return ""

    def _matching(
        self, entry: Mapping[str, Any], name: str, pattern: re.Pattern[str]
    ) -> str:
        value = self._text(entry, name)
        if value and not pattern.fullmatch(value):
            self._problems.append(f"{name} has characters that no {name} has")
            return ""
        return value

    def _pem(self, entry: Mapping[str, Any], name: str, group: str) -> str:
        value = self._text(entry, name)
        if not value:
            return ""
        try:
            return base64.b64decode(value, validate=True).decode("ascii")
        except (binascii.Error, ValueError):
            self._problems.append(f"{group[:-1]}.{name} is not base64 of PEM text")
            return ""

    def _check_pems(self, authority: str, certificate: str, key: str) -> None:
        for name, pem in (
            ("certificate-authority-data", authority),
            ("client-certificate-data", certificate),
        ):
            if pem.count("-----BEGIN") > _CERTIFICATES_MAX:
                self._problems.append(
                    f"{name} holds more than {_CERTIFICATES_MAX} certificates"
                )
                continue
            try:
                if pem:
                    x509.load_pem_x509_certificates(pem.encode())
            except (ValueError, x509.InvalidVersion, UnsupportedAlgorithm):
                self._problems.append(f"{name} holds no certificate in PEM form")
        if len(key) > _KEY_CHARACTERS_MAX:
            self._problems.append(
                f"client-key-data is larger than {_KEY_CHARACTERS_MAX} characters"
            )
            return
        try:
            if key:
                # The server checks whether the key's numbers are prime: that takes
                # seconds for a long key.
                load_pem_private_key(
                    key.encode(), password=None, unsafe_skip_rsa_key_validation=True
                )
        except (ValueError, TypeError, UnsupportedAlgorithm):
            self._problems.append(
                "client-key-data holds no unencrypted private key in PEM form"
            )

    def _plugin(self, user: Mapping[str, Any]) -> ExecPlugin | None:
        block = user.get("exec")
        if not block or not self._settings.allow_exec:
            return None
        if not isinstance(block, Mapping) or not (
            block.get("command") and _is_argument(block["command"])
        ):
            self._problems.append("user.exec.command is not set")
            return None
        args = block.get("args") or []
        env = block.get("env") or []
        version = block.get("apiVersion") or ExecPlugin.api_version
        if not (isinstance(args, list) and all(_is_argument(arg) for arg in args)):
            self._problems.append("user.exec.args must be a list of text")
        if not (isinstance(env, list) and all(_is_variable(entry) for entry in env)):
            self._problems.append(
                "user.exec.env must be a list of objects with a name and a value each"
            )
        if not isinstance(version, str):
            self._problems.append("user.exec.apiVersion must be text")
        if self._problems:
            return None
        return ExecPlugin(
            command=block["command"],
            args=tuple(args),
            env={entry["name"]: entry["value"] for entry in env},
            api_version=version,
        )

    def _auth_provider_token(self, user: Mapping[str, Any]) -> str:
        """Return the token that an auth provider stored.

        It is never refreshed, because Kubernetes has removed these providers.
        """
        block = user.get("auth-provider")
        if not block or not self._settings.allow_exec:
            return ""
        config = block.get("config") if isinstance(block, Mapping) else None
        found = None
        if isinstance(config, Mapping):
            found = config.get("id-token") or config.get("access-token")
        if not isinstance(found, str) or not _TOKEN.fullmatch(found):
            self._problems.append(
                "user.auth-provider holds neither id-token nor access-token"
            )
            return ""
        return found

    def _raise_problems(self) -> None:
        if self._problems:
            raise CredentialsInvalid(
                f"{self._subject}: the kubeconfig is refused: "
                f"{'; '.join(self._problems)}. "
                "Fix it in the secret store; it is read again at every attempt"
            )


def _is_argument(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_variable(entry: object) -> bool:
    if not isinstance(entry, Mapping):
        return False
    name, value = entry.get("name"), entry.get("value")
    return (
        isinstance(name, str)
        and bool(_ENVIRONMENT_NAME.fullmatch(name))
        and isinstance(value, str)
        and "\0" not in value
    )


def _shown(text: str) -> str:
    """Return a quoted name or address, unless it may be a misplaced credential.

    Text that looks random is not shown: long parts without separators, and parts that
    mix letters and digits for more than a few characters.
    """
    parts = _NAME_SEPARATORS.split(text)
    random = sum(
        len(part) for part in parts if not part.isdigit() and not part.isalpha()
    )
    short = all(len(part) <= _NAME_PART_MAX for part in parts)
    if _NAME.fullmatch(text) and random <= _RANDOM_MAX and short:
        return repr(redact(text))
    return "(not shown: it may be a credential)"
