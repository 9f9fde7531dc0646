"""Resolve a tag of an OCI registry to the digest of its manifest.

This includes the token requests of the distribution protocol. A tenant names the
registry, and the registry names its token server, so neither is trusted: requests to
both follow the rules of `outward`, and a token is sent to the registry only if it has
the syntax of a token.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import parse_qsl, urlencode, urlsplit

from activities.clients.hubs.huggingface import error_for
from activities.clients.outward.addresses import AddressRules
from activities.clients.outward.answers import read_object
from activities.clients.outward.redaction import without_credential
from activities.clients.outward.requests import (
    HostRefused,
    HttpResponse,
    OutwardClient,
    no_usable_answer,
)
from activities.render.cache.artifact import Artifact
from api_types.errors import (
    CredentialsInvalid,
    InvalidInput,
    ModelplaneError,
    ServerError,
    Unsupported,
)
from api_types.model_sources import ImageReference, is_digest, read_image
from api_types.setting_types import Network

# The distribution specification requires registries to accept manifests of this size.
_MANIFEST_BYTES_MAX = 4 << 20
_TOKEN_ANSWER_BYTES_MAX = 64 << 10
# Match only at the start of a word. Otherwise a header of one long word would be
# searched again from each of its letters.
_CHALLENGE = re.compile(r'\b(\w+)="([^"]*)"')
# As in RFC 6750. Servers accept headers of 8 KiB or more.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{1,32768}=*")
_SCHEMA_VERSION = 2
_MANIFESTS = ", ".join(
    f"application/vnd.{kind}+json"
    for kind in (
        "oci.image.manifest.v1",
        "oci.image.index.v1",
        "docker.distribution.manifest.v2",
    )
)
_DEFAULT_TAG = "latest"


class OciRegistry:
    """Any registry; the image reference contains its address.

    `private` are non-public networks in which registries may be.
    """

    def __init__(
        self, private: Sequence[Network] = (), *, allow_plain_http: bool = False
    ) -> None:
        self._client = OutwardClient(AddressRules(private=tuple(private)))
        self._allow_plain_http = allow_plain_http

    async def resolve(self, artifact: Artifact, credential: str) -> str:
        """Return the digest to which the tag points.

        A digest is returned unchanged. `credential` is a docker config.
        """
        if artifact.plain_http and not self._allow_plain_http:
            raise Unsupported(
                f"image {artifact.origin}: plainHTTP is refused unless the operator sets "
                "oci.allowPlainHttp"
            )
        if is_digest(artifact.revision):
            return artifact.revision
        reference = _reference(artifact.origin)
        login = _login(credential, reference.host)
        answer = await self._manifest(reference, artifact, login)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            answer = await self._manifest(
                reference,
                artifact,
                await self._token(answer, login, reference, artifact),
            )
        if answer.status != HTTPStatus.OK:
            raise _error(answer, reference, artifact, with_credential=bool(login))
        digest = answer.headers.get("Docker-Content-Digest", "")
        computed = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
        if digest and digest != computed:
            shown = digest if is_digest(digest) else "in an invalid form"
            raise ServerError(
                f"{reference.host} returned a digest {shown} for {artifact.origin}, "
                f"but the content has {computed}"
            )
        _check_manifest(answer, reference)
        return computed

    async def _manifest(
        self, reference: ImageReference, artifact: Artifact, authorization: str
    ) -> HttpResponse:
        scheme = "http" if artifact.plain_http else "https"
        tag = reference.tag or _DEFAULT_TAG
        url = f"{scheme}://{reference.host}/v2/{reference.repository}/manifests/{tag}"
        headers = {"Accept": _MANIFESTS, **_authorization(authorization)}
        try:
            return await self._client.get(
                url,
                headers,
                size_max=_MANIFEST_BYTES_MAX,
                plain_http=artifact.plain_http,
            )
        except HostRefused as error:
            raise Unsupported(
                f"image {artifact.origin}: the worker does not connect to "
                f"{reference.host}: {error}"
            ) from None

    async def _token(
        self,
        challenge: HttpResponse,
        login: str,
        reference: ImageReference,
        artifact: Artifact,
    ) -> str:
        """Exchange the login for a token, and return an Authorization header.

        The registry names the token server. Without a login the token is anonymous.
        """
        scheme, _, rest = challenge.headers.get("WWW-Authenticate", "").partition(" ")
        fields = dict(_CHALLENGE.findall(rest))
        realm = fields.get("realm", "")
        if scheme.lower() != "bearer" or not realm:
            return login
        plain = artifact.plain_http and _host(realm) == _host(
            f"http://{reference.host}"
        )
        if not realm.startswith("https://") and not plain:
            raise CredentialsInvalid(
                f"the registry of {artifact.origin} requests the credential without TLS "
                "or for another server, which is refused"
            )
        try:
            query = {
                key: fields[key] for key in ("service", "scope") if fields.get(key)
            }
            url = _with_query(realm, query)
            answer = await self._client.get(
                url,
                _authorization(login),
                size_max=_TOKEN_ANSWER_BYTES_MAX,
                plain_http=plain,
            )
        except (HostRefused, ServerError, ValueError) as error:
            # Report failures of the token server like failures of the registry that
            # named it.
            raise no_usable_answer(
                reference.host,
                f"its token server {_host(realm)!r}: "
                f"{without_credential(str(error), login)}",
            ) from None
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise _refused(answer, reference, artifact, with_credential=bool(login))
        return f"Bearer {_token_of(answer, reference, realm)}"


def _reference(image: str) -> ImageReference:
    """Return the parsed reference of an image.

    Raises InvalidInput if it names no registry: the unpacking tool and docker have
    different default registries.
    """
    try:
        reference = read_image(image)
    except ValueError as error:
        raise InvalidInput(f"image {image!r} is not a reference: {error}") from None
    if not reference.host:
        raise InvalidInput(
            f"image {image!r} names no registry; write the full reference, "
            "such as registry.example/models/qwen:1.0"
        )
    return reference


def _error(
    answer: HttpResponse,
    reference: ImageReference,
    artifact: Artifact,
    *,
    with_credential: bool,
) -> ModelplaneError:
    """Return the error for a response without a manifest.

    The error has details only if the response has the form of a registry's error.
    """
    if (
        answer.status != HTTPStatus.UNAUTHORIZED
        or "WWW-Authenticate" not in answer.headers
    ):
        try:
            known = isinstance(read_object(answer.body).get("errors"), list)
        except ValueError:
            known = False
        if not known:
            return no_usable_answer(reference.host, f"status {answer.status}")
    return _refused(answer, reference, artifact, with_credential=with_credential)


def _refused(
    answer: HttpResponse,
    reference: ImageReference,
    artifact: Artifact,
    *,
    with_credential: bool,
) -> ModelplaneError:
    found = error_for(
        answer, reference.host, artifact.origin, with_credential=with_credential
    )
    return found or no_usable_answer(reference.host, f"status {answer.status}")


def _check_manifest(answer: HttpResponse, reference: ImageReference) -> None:
    try:
        version = read_object(answer.body).get("schemaVersion")
    except ValueError as error:
        raise no_usable_answer(reference.host, f"the manifest: {error}") from None
    if version != _SCHEMA_VERSION:
        raise no_usable_answer(
            reference.host, "the manifest has another schemaVersion than 2"
        )


def _token_of(answer: HttpResponse, reference: ImageReference, realm: str) -> str:
    reason = f"status {answer.status}"
    if answer.status == HTTPStatus.OK:
        try:
            found = read_object(answer.body)
            token = found.get("token") or found.get("access_token")
            if isinstance(token, str) and _TOKEN.fullmatch(token):
                return token
            reason = "no token in it"
        except ValueError as error:
            reason = str(error)
    raise no_usable_answer(
        reference.host, f"its token server {_host(realm)!r}: {reason}"
    )


def _with_query(url: str, fields: dict[str, str]) -> str:
    parts = urlsplit(url)
    return parts._replace(
        query=urlencode([*parse_qsl(parts.query), *fields.items()]), fragment=""
    ).geturl()


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _authorization(value: str) -> dict[str, str]:
    return {"Authorization": value} if value else {}


def _login(docker_config: str, host: str) -> str:
    """Return the Authorization header of a docker config for a registry.

    Returns "" if the config has no login for it. Raises CredentialsInvalid.
    """
    if not docker_config:
        return ""
    try:
        entry = (json.loads(docker_config).get("auths") or {}).get(host) or {}
        auth = entry.get("auth")
        if not auth:
            login = f"{entry.get('username', '')}:{entry.get('password', '')}"
            auth = base64.b64encode(login.encode()).decode()
        known = base64.b64decode(auth, validate=True).decode().strip(":")
    except (ValueError, TypeError, AttributeError, RecursionError, binascii.Error):
        # The text may contain the password.
        raise CredentialsInvalid(
            "the pull Secret has no valid docker config; "
            "create it with type kubernetes.io/dockerconfigjson"
        ) from None
    return f"Basic {auth}" if known else ""
