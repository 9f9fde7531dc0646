"""Parse the credential that creates clusters at Google Cloud, as untrusted input.

Credential files of Google also name addresses that issue tokens, and programs, files
and URLs that issue identities. Only Google's own addresses are accepted, and only files
and URLs that a setting names, so that a credential cannot make a worker run a program,
read a file or call another host. Fields that are not needed are dropped.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from activities.clouds.permitted import PermittedSources
from api_types.errors import CredentialsInvalid

TEXT_MAX = 16_384
"""In characters. A key file has about 2,400."""

KEY, FEDERATION, IMPERSONATION, WORKER = (
    "service_account",
    "external_account",
    "impersonated_service_account",
    "worker_identity",
)
"""The types of credentials. Only the last one is Modelplane's."""

_KEY_FIELDS = (
    "type",
    "project_id",
    "private_key_id",
    "private_key",
    "client_email",
    "client_id",
    "token_uri",
)
_KEY_REQUIRED = ("project_id", "private_key", "client_email", "token_uri")
_TOKEN_HOSTS = ("oauth2.googleapis.com", "accounts.google.com", "www.googleapis.com")
_EMAIL = r"[a-z0-9-]{1,63}@([a-z0-9.:-]{1,100})\.iam\.gserviceaccount\.com"
_AUDIENCE = re.compile(
    r"//iam\.googleapis\.com/projects/[0-9]+/locations/global/workloadIdentityPools"
    r"/[a-z0-9-]{4,32}/providers/[a-z0-9-]{4,32}"
)
_TOKEN_TYPES = (
    "urn:ietf:params:oauth:token-type:jwt",
    "urn:ietf:params:oauth:token-type:id_token",
)
_FORMATS = ("text", "json")
# A metadata server wants one of these. Others could carry anything to the URL.
_HEADERS = ("Metadata", "Metadata-Flavor")
_SHORT_MAX = 200


@dataclass(frozen=True)
class GoogleAddresses:
    """The addresses that issue tokens. A fake has others.

    `exact_token_uri` is the only token address of keys, if there is one.
    """

    sts: str = "https://sts.googleapis.com/v1/token"
    credentials: str = "https://iamcredentials.googleapis.com/v1"
    exact_token_uri: str = ""

    def impersonation_url(self, email: str) -> str:
        """Return the address that issues tokens of an account."""
        return (
            f"{self.credentials}/projects/-/serviceAccounts/{email}:generateAccessToken"
        )


@dataclass(frozen=True)
class GoogleCredential:
    """A credential of the account `email` in `project`. Either may be empty.

    `info` is for google-auth, and never printed. `source` is the credential that
    impersonates the account. `of_worker` means that the worker's own identity is the
    source.
    """

    kind: str
    project: str
    email: str
    info: Mapping[str, Any] = field(repr=False)
    source: "GoogleCredential | None" = None
    of_worker: bool = False


def read_google_credential(
    text: str,
    permitted: PermittedSources | None = None,
    addresses: GoogleAddresses | None = None,
) -> GoogleCredential:
    """Parse a credential.

    Without `permitted` nothing of the worker may be used. Raises CredentialsInvalid,
    whose message contains no secret of the text. A real key is rejected at a fake,
    because the fake gets tokens in clear text.
    """
    if len(text) > TEXT_MAX:
        raise CredentialsInvalid(
            f"the credential has more than {TEXT_MAX} characters, and so is not a "
            "credential of Google Cloud"
        )
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise CredentialsInvalid(
            "the credential is not JSON: store the file as Google Cloud wrote it"
        ) from None
    if not isinstance(found, dict):
        raise CredentialsInvalid(
            "the credential is not a JSON object: store the file as Google Cloud wrote it"
        )
    reader = _GoogleReader(
        permitted or PermittedSources(), addresses or GoogleAddresses()
    )
    return reader.read(found, "")


@dataclass(frozen=True)
class _GoogleReader:
    permitted: PermittedSources
    addresses: GoogleAddresses

    def read(self, found: Mapping[str, Any], at: str) -> GoogleCredential:
        """Read a credential. `at` is the path of the field that contains it."""
        match found.get("type"):
            case "service_account":
                return self._key(found, at)
            case "external_account":
                return self._federation(found, at)
            case "impersonated_service_account" if not at:
                return self._impersonation(found)
            case "worker_identity":
                return self._worker(found, at)
        kinds = [KEY, FEDERATION, *([] if at else [IMPERSONATION]), WORKER]
        raise CredentialsInvalid(
            f"{at}type of the credential is none of {', '.join(kinds)}; other types can "
            "make the worker call other hosts or programs"
        )

    def _key(self, found: Mapping[str, Any], at: str) -> GoogleCredential:
        info = {name: found[name] for name in _KEY_FIELDS if name in found}
        if bad := [name for name in info if not isinstance(info[name], str)]:
            raise CredentialsInvalid(
                f"the credential has fields that are not text: {', '.join(bad)}"
            )
        if missing := [name for name in _KEY_REQUIRED if not info.get(name)]:
            raise CredentialsInvalid(f"the credential lacks {', '.join(missing)}")
        uri, exact = info["token_uri"], self.addresses.exact_token_uri
        if exact and uri != exact:
            raise CredentialsInvalid(
                "the credential does not belong to the fake Google Cloud of this machine, "
                "which accepts no other"
            )
        if not exact and not _is_of_google(uri):
            raise CredentialsInvalid(
                f"{at}token_uri of the credential is not https://{_TOKEN_HOSTS[0]}/token: "
                "tokens are fetched from Google only"
            )
        return GoogleCredential(KEY, info["project_id"], info["client_email"], info)

    def _federation(self, found: Mapping[str, Any], at: str) -> GoogleCredential:
        audience = _text(found, "audience", at)
        if not _AUDIENCE.fullmatch(audience):
            raise CredentialsInvalid(
                f"{at}audience of the credential is not that of a workload identity pool: "
                "//iam.googleapis.com/projects/NUMBER/locations/global/"
                "workloadIdentityPools/POOL/providers/PROVIDER"
            )
        token_type = _text(found, "subject_token_type", at)
        if token_type not in _TOKEN_TYPES:
            raise CredentialsInvalid(
                f"{at}subject_token_type of the credential is none of "
                f"{', '.join(_TOKEN_TYPES)}"
            )
        if _text(found, "token_url", at) != self.addresses.sts:
            raise CredentialsInvalid(
                f"{at}token_url of the credential is not {self.addresses.sts}: tokens are "
                "exchanged at Google only"
            )
        url, email, home = "", "", ""
        if "service_account_impersonation_url" in found:
            url = _text(found, "service_account_impersonation_url", at)
            email, home = self._account(url, at)
        project = self._project(found, at) or home
        # The token is the worker's, so it counts as its identity.
        self._of_worker(project, home, f"{at}credential_source")
        info = {
            "type": FEDERATION,
            "audience": audience,
            "subject_token_type": token_type,
            "token_url": self.addresses.sts,
            "credential_source": self._source(found.get("credential_source"), at),
        }
        if url:
            info["service_account_impersonation_url"] = url
        return GoogleCredential(FEDERATION, project, email, info, of_worker=True)

    def _source(self, source: Any, at: str) -> dict[str, Any]:
        where = f"{at}credential_source"
        if not isinstance(source, dict):
            raise CredentialsInvalid(f"{where} of the credential is not an object")
        kinds = [kind for kind in ("file", "url") if kind in source]
        others = sorted(source.keys() - {"file", "url", "headers", "format"})
        if others or len(kinds) != 1:
            named = f"{where}.{others[0]}"[:_SHORT_MAX] if others else where
            raise CredentialsInvalid(
                f"{named} of the credential is not supported: the source of a token is "
                "either a file or a url; programs, certificates and other clouds are not"
            )
        kind = kinds[0]
        place = _text(source, kind, f"{where}.")
        if kind == "file":
            self.permitted.check_file(place, f"{where}.file")
        else:
            self.permitted.check_url(place, f"{where}.url")
        read: dict[str, Any] = {kind: place}
        if "headers" in source:
            read["headers"] = _headers(source["headers"], f"{where}.headers")
        if "format" in source:
            read["format"] = _format(source["format"], f"{where}.format")
        return read

    def _impersonation(self, found: Mapping[str, Any]) -> GoogleCredential:
        url = _text(found, "service_account_impersonation_url", "")
        email, home = self._account(url, "")
        project = self._project(found, "") or home
        if found.get("delegates"):
            raise CredentialsInvalid(
                "delegates of the credential is not supported: let source_credentials "
                "impersonate the account directly"
            )
        inner = found.get("source_credentials")
        if not isinstance(inner, dict):
            raise CredentialsInvalid(
                "source_credentials of the credential is not an object"
            )
        source = self.read({"project_id": project, **inner}, "source_credentials.")
        if source.of_worker:
            self._of_worker(project, home, "source_credentials")
        info = {"service_account_impersonation_url": url}
        return GoogleCredential(
            IMPERSONATION, project, email, info, source, of_worker=source.of_worker
        )

    def _worker(self, found: Mapping[str, Any], at: str) -> GoogleCredential:
        project = self._project(found, at)
        if not project:
            raise CredentialsInvalid(
                f"{at}project_id of the credential is empty: name the project of the "
                "clusters"
            )
        self._of_worker(project, "", f'{at}type "{WORKER}"')
        return GoogleCredential(WORKER, project, "", {}, of_worker=True)

    def _of_worker(self, project: str, home: str, field: str) -> None:
        """Check the cluster project and the project of an impersonated account."""
        for each in filter(None, dict.fromkeys((project, home))):
            self.permitted.check_account(each, field)

    def _project(self, found: Mapping[str, Any], at: str) -> str:
        return _text(found, "project_id", at) if "project_id" in found else ""

    def _account(self, url: str, at: str) -> tuple[str, str]:
        """Return email and project of the account that an address impersonates."""
        email = url.rpartition("/")[2].removesuffix(":generateAccessToken")
        named = re.fullmatch(_EMAIL, email)
        if named is None or url != self.addresses.impersonation_url(email):
            raise CredentialsInvalid(
                f"{at}service_account_impersonation_url of the credential is not "
                f"{self.addresses.impersonation_url('NAME@PROJECT.iam.gserviceaccount.com')}"
            )
        # The account of project `example.com:ml` is at `ml.example.com`.
        project, _, domain = named[1].partition(".")
        return email, f"{domain}:{project}" if domain else project


def _text(found: Mapping[str, Any], name: str, at: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value.isprintable():
        raise CredentialsInvalid(f"{at}{name} of the credential is not text")
    return value


def _headers(found: Any, where: str) -> dict[str, str]:
    named = isinstance(found, dict) and all(
        name in _HEADERS and isinstance(value, str) and value.isalnum()
        for name, value in found.items()
    )
    if not named:
        raise CredentialsInvalid(
            f"{where} of the credential has others than {' and '.join(_HEADERS)} with a "
            "word as value: remove them"
        )
    return dict(found)


def _format(found: Any, where: str) -> dict[str, str]:
    if not isinstance(found, dict) or found.get("type") not in _FORMATS:
        raise CredentialsInvalid(
            f"{where}.type of the credential is none of {', '.join(_FORMATS)}"
        )
    if found["type"] == "text":
        return {"type": "text"}
    name = _text(found, "subject_token_field_name", f"{where}.")
    return {"type": "json", "subject_token_field_name": name}


def _is_of_google(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    return parts.scheme == "https" and parts.netloc in _TOKEN_HOSTS
