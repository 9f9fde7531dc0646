"""The key of a service account by which clusters are created: read strictly, because it comes from outside.

A key file also says where tokens are fetched; only Google's own address is taken, so that a credential cannot make a worker call another
host. Fields that are not needed are dropped.
"""

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from api_types.errors import CredentialsInvalid

TEXT_MAX = 16_384
"""Characters. A key file has about 2,400."""

_FIELDS = ("type", "project_id", "private_key_id", "private_key", "client_email", "client_id", "token_uri")
_REQUIRED = ("project_id", "private_key", "client_email", "token_uri")
_TOKEN_HOSTS = ("oauth2.googleapis.com", "accounts.google.com", "www.googleapis.com")
_KIND = "service_account"


@dataclass(frozen=True)
class ServiceAccountKey:
    """A key of the account `email` in `project`; `info` is what google-auth takes, and never printed."""

    project: str
    email: str
    info: dict[str, str] = field(repr=False)


def read_key(text: str, *, token_uri: str = "") -> ServiceAccountKey:
    """Read the JSON key of a service account. Raises CredentialsInvalid in words that have nothing of it.

    `token_uri` is that of a fake, in place of Google's: a key of Google is none of it, because tokens travel in the clear there.
    """
    if len(text) > TEXT_MAX:
        raise CredentialsInvalid(f"the credential has more than {TEXT_MAX} characters: it is no JSON key of a service account")
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise CredentialsInvalid("the credential is not JSON: store the key file of a service account as it was downloaded") from None
    if not isinstance(found, dict):
        raise CredentialsInvalid("the credential is no JSON object: store the key file of a service account as it was downloaded")
    if found.get("type") != _KIND:
        raise CredentialsInvalid(f'the credential is not of type "{_KIND}"; other types can make the worker call other hosts or programs')
    info = {name: found[name] for name in _FIELDS if name in found}
    if bad := [name for name in info if not isinstance(info[name], str)]:
        raise CredentialsInvalid(f"the credential has fields that are no text: {', '.join(bad)}")
    if missing := [name for name in _REQUIRED if not info.get(name)]:
        raise CredentialsInvalid(f"the credential lacks {', '.join(missing)}")
    if token_uri and info["token_uri"] != token_uri:
        raise CredentialsInvalid("the credential is none of the fake Google Cloud of this machine, which takes its own alone")
    if not token_uri and not _is_of_google(info["token_uri"]):
        raise CredentialsInvalid(f"token_uri of the credential is not https://{_TOKEN_HOSTS[0]}/token: tokens are fetched from Google only")
    return ServiceAccountKey(info["project_id"], info["client_email"], info)


def _is_of_google(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    return parts.scheme == "https" and parts.netloc in _TOKEN_HOSTS
