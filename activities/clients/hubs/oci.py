"""An OCI registry, as far as resolving a tag needs it: the manifest's digest, with the token requests of the distribution protocol."""

import base64
import binascii
import hashlib
import json
import re
from http import HTTPStatus
from typing import NamedTuple

import httpx

from activities.clients.hubs.huggingface import error_for, send_request
from activities.render.cache.artifact import Artifact
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
        """Parse one. Raises InvalidInput if it names no registry: the unpacker has another default than docker."""
        host, slash, rest = image.partition("/")
        if not slash or not (set(".:") & set(host) or host == "localhost"):
            raise InvalidInput(f"image {image!r} names no registry; write the full reference, such as registry.example/models/qwen:1.0")
        repository, _, tag = rest.partition(":")
        return cls(host, repository, tag or _DEFAULT_TAG)


class OciRegistry:
    """Any registry; its address is in the image reference."""

    async def resolve(self, artifact: Artifact, credential: str) -> str:
        """Give the digest that the tag points to; a digest is returned as it is. `credential` is a docker config."""
        if _DIGEST.fullmatch(artifact.revision):
            return artifact.revision
        reference = Reference.of(artifact.origin)
        login = _login(credential, reference.host)
        url = f"{'http' if artifact.plain_http else 'https'}://{reference.host}/v2/{reference.repository}/manifests/{reference.tag}"
        response = await _get(url, login)
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            response = await _get(url, await _token(response, login, artifact))
        if response.status_code != HTTPStatus.OK:
            raise error_for(response, artifact.origin, with_credential=bool(login))
        digest = response.headers.get("Docker-Content-Digest", "")
        computed = f"sha256:{hashlib.sha256(response.content).hexdigest()}"
        if digest and digest != computed:
            raise ServerError(f"{reference.host} returned digest {digest} for {artifact.origin}, but the content has {computed}")
        return computed


async def _get(url: str, authorization: str) -> httpx.Response:
    headers = {"Accept": _MANIFESTS, **({"Authorization": authorization} if authorization else {})}
    return await send_request(url, lambda http: http.get(url, headers=headers, follow_redirects=True))


async def _token(challenge: httpx.Response, login: str, artifact: Artifact) -> str:
    """Exchange the login for a token where the registry says; anonymous without one. Gives an Authorization header, empty if refused."""
    scheme, _, rest = challenge.headers.get("WWW-Authenticate", "").partition(" ")
    fields = dict(_CHALLENGE.findall(rest))
    realm = fields.get("realm", "")
    if scheme.lower() != "bearer" or not realm:
        return login
    if not realm.startswith("https://") and not artifact.plain_http:
        raise CredentialsInvalid(f"the registry of {artifact.origin} wants the credential sent to {realm!r} without TLS; that is refused")
    query = {key: fields[key] for key in ("service", "scope") if fields.get(key)}
    headers = {"Authorization": login} if login else {}
    response = await send_request(realm, lambda http: http.get(realm, params=query, headers=headers))
    if response.status_code != HTTPStatus.OK:
        raise error_for(response, artifact.origin, with_credential=bool(login))
    try:
        found = response.json()
        return f"Bearer {found.get('token') or found['access_token']}"
    except (ValueError, KeyError, AttributeError) as error:
        raise ServerError(f"{httpx.URL(realm).host} returned no token for {artifact.origin}") from error


def _login(docker_config: str, host: str) -> str:
    """Give the Authorization header that a docker config has for a registry; empty if it has none. Raises CredentialsInvalid."""
    if not docker_config:
        return ""
    try:
        entry = (json.loads(docker_config).get("auths") or {}).get(host) or {}
        auth = entry.get("auth") or base64.b64encode(f"{entry.get('username', '')}:{entry.get('password', '')}".encode()).decode()
        known = base64.b64decode(auth, validate=True).decode().strip(":")
    except (ValueError, AttributeError, binascii.Error):
        # The text may contain the password.
        raise CredentialsInvalid("the pull Secret has no valid docker config; create it with type kubernetes.io/dockerconfigjson") from None
    return f"Basic {auth}" if known else ""
