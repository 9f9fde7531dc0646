"""An OCI registry, as far as pinning a tag needs it: the manifest's digest, with the token dance of the distribution protocol."""

import base64
import binascii
import hashlib
import json
import re
from http import HTTPStatus
from typing import NamedTuple

import httpx

from activities.clients.hubs.huggingface import asked, refusal
from activities.render.cache.artifact import Artefact
from api_types.errors import CredentialsInvalid, InvalidInput, ServerError

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_MANIFESTS = ", ".join(
    f"application/vnd.{kind}+json" for kind in ("oci.image.manifest.v1", "oci.image.index.v1", "docker.distribution.manifest.v2")
)
_DEFAULT_TAG = "latest"


class Reference(NamedTuple):
    """An image reference in its parts."""

    host: str
    repository: str
    tag: str

    @classmethod
    def of(cls, image: str) -> "Reference":
        """Read one. Raises InvalidInput if it names no registry: there is no default that both we and the unpacker would mean."""
        host, slash, rest = image.partition("/")
        if not slash or not (set(".:") & set(host) or host == "localhost"):
            raise InvalidInput(f"image {image!r} names no registry; write it whole, such as registry.example/models/qwen:1.0")
        repository, _, tag = rest.partition(":")
        return cls(host, repository, tag or _DEFAULT_TAG)


class OciRegistry:
    """Any registry; its address stands in the image reference."""

    async def resolve(self, artefact: Artefact, credential: str) -> str:
        """Give the digest that the tag means now; a digest is believed. `credential` is a docker config."""
        if _DIGEST.fullmatch(artefact.revision):
            return artefact.revision
        reference = Reference.of(artefact.origin)
        login = _login(credential, reference.host)
        url = f"{'http' if artefact.plain_http else 'https'}://{reference.host}/v2/{reference.repository}/manifests/{reference.tag}"
        answer = await _get(url, login)
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            answer = await _get(url, await _token(answer, login, artefact))
        if answer.status_code != HTTPStatus.OK:
            raise refusal(answer, artefact.origin, with_credential=bool(login))
        digest = answer.headers.get("Docker-Content-Digest", "")
        computed = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
        if digest and digest != computed:
            raise ServerError(f"{reference.host} says {digest} for {artefact.origin}, but its content is {computed}")
        return computed


async def _get(url: str, authorization: str) -> httpx.Response:
    headers = {"Accept": _MANIFESTS, **({"Authorization": authorization} if authorization else {})}
    return await asked(url, lambda http: http.get(url, headers=headers, follow_redirects=True))


async def _token(challenge: httpx.Response, login: str, artefact: Artefact) -> str:
    """Trade the login for a token where the registry says; anonymous without one. Gives an Authorization header, empty if refused."""
    scheme, _, rest = challenge.headers.get("WWW-Authenticate", "").partition(" ")
    fields = dict(_CHALLENGE.findall(rest))
    realm = fields.get("realm", "")
    if scheme.lower() != "bearer" or not realm:
        return login
    if not realm.startswith("https://") and not artefact.plain_http:
        raise CredentialsInvalid(f"the registry of {artefact.origin} wants the credential sent to {realm!r} in the clear; that is refused")
    query = {key: fields[key] for key in ("service", "scope") if fields.get(key)}
    headers = {"Authorization": login} if login else {}
    answer = await asked(realm, lambda http: http.get(realm, params=query, headers=headers))
    if answer.status_code != HTTPStatus.OK:
        raise refusal(answer, artefact.origin, with_credential=bool(login))
    try:
        found = answer.json()
        return f"Bearer {found.get('token') or found['access_token']}"
    except (ValueError, KeyError, AttributeError) as error:
        raise ServerError(f"{httpx.URL(realm).host} answered without a token for {artefact.origin}") from error


def _login(docker_config: str, host: str) -> str:
    """Give the Authorization header that a docker config holds for a registry; empty if it has none. Raises CredentialsInvalid."""
    if not docker_config:
        return ""
    try:
        entry = (json.loads(docker_config).get("auths") or {}).get(host) or {}
        auth = entry.get("auth") or base64.b64encode(f"{entry.get('username', '')}:{entry.get('password', '')}".encode()).decode()
        known = base64.b64decode(auth, validate=True).decode().strip(":")
    except (ValueError, AttributeError, binascii.Error):
        # The text may hold the password.
        raise CredentialsInvalid("the pull Secret holds no docker config that can be read; make it of type dockerconfigjson") from None
    return f"Basic {auth}" if known else ""
