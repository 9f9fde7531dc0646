"""Resolve a revision of the Hugging Face hub to a commit, with one metadata request."""

import re
from http import HTTPStatus
from urllib.parse import quote, urlsplit

from activities.clients.outward.addresses import AddressRules
from activities.clients.outward.answers import read_object
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
    Throttled,
    Unsupported,
)

ENDPOINT = "https://huggingface.co"
# The metadata lists the files of the repository.
_METADATA_BYTES_MAX = 4 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TOKEN = re.compile(r"[!-~]{1,4096}")


class HuggingFaceHub:
    """The hub at `endpoint`, which the operator sets; empty means the public hub."""

    def __init__(self, endpoint: str = "") -> None:
        self._endpoint = (endpoint or ENDPOINT).rstrip("/")
        self._host = urlsplit(self._endpoint).netloc.rpartition("@")[2]
        self._client = OutwardClient(AddressRules(), trusted=endpoint)

    async def resolve(self, artifact: Artifact, credential: str) -> str:
        """Return the commit to which the revision points.

        A commit is returned unchanged.
        """
        if _COMMIT.fullmatch(artifact.revision):
            return artifact.revision
        what = artifact.origin
        if artifact.revision:
            what += f" at {artifact.revision}"
        if credential and not _TOKEN.fullmatch(credential):
            raise CredentialsInvalid(
                f"the token for {what} has characters that no token has, such as a line "
                "break; store it without them"
            )
        revision = (
            f"/revision/{quote(artifact.revision, safe='')}"
            if artifact.revision
            else ""
        )
        url = f"{self._endpoint}/api/models/{artifact.origin}{revision}"
        headers = {"Authorization": f"Bearer {credential}"} if credential else {}
        # The hub redirects requests for a renamed repository.
        try:
            answer = await self._client.get(
                url,
                headers,
                size_max=_METADATA_BYTES_MAX,
                plain_http=self._endpoint.startswith("http://"),
            )
        except HostRefused as error:
            raise Unsupported(
                f"cache.hubEndpoint: the worker does not connect to {self._host}: {error}"
            ) from None
        if answer.status != HTTPStatus.OK:
            raise error_for(
                answer, self._host, what, with_credential=bool(credential)
            ) or ServerError(f"{self._host} returned {answer.status} for {what}")
        try:
            commit = read_object(answer.body).get("sha")
        except ValueError as error:
            raise no_usable_answer(self._host, str(error)) from None
        if not (isinstance(commit, str) and _COMMIT.fullmatch(commit)):
            raise ServerError(f"{self._host} returned no commit for {what}")
        return commit


def error_for(
    answer: HttpResponse, host: str, what: str, *, with_credential: bool
) -> ModelplaneError | None:
    """Return the error for a response that states a reason; otherwise None."""
    status = answer.status
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        if with_credential:
            return CredentialsInvalid(
                f"{host} refused the credential for {what} ({status})"
            )
        return CredentialsInvalid(
            f"{host} requires a credential for {what}, or it does not exist ({status})"
        )
    if status == HTTPStatus.NOT_FOUND:
        return InvalidInput(f"{what} does not exist on {host} ({status})")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Throttled(f"{host} limits the rate of requests ({status})")
    return None
