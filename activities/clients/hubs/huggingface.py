"""The Hugging Face hub, as far as resolving a revision needs it: one request for metadata."""

import re
from http import HTTPStatus
from urllib.parse import quote, urlsplit

from activities.clients.outward.addresses import AddressRules
from activities.clients.outward.answers import read_object
from activities.clients.outward.requests import Answer, HostRefused, OutwardClient, no_usable_answer
from activities.render.cache.artifact import Artifact
from api_types.errors import CredentialsInvalid, InvalidInput, ModelplaneError, ServerError, Throttled, Unsupported

ENDPOINT = "https://huggingface.co"
# A repository lists its files in it.
_METADATA_BYTES_MAX = 4 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TOKEN = re.compile(r"[!-~]{1,4096}")


class HuggingFaceHub:
    """The hub at `endpoint`, an address of the operator; empty means the public one."""

    def __init__(self, endpoint: str = "") -> None:
        self._endpoint = (endpoint or ENDPOINT).rstrip("/")
        self._host = urlsplit(self._endpoint).netloc.rpartition("@")[2]
        self._client = OutwardClient(AddressRules(), trusted=endpoint)

    async def resolve(self, artifact: Artifact, credential: str) -> str:
        """Give the commit that the revision points to; a revision that is a commit is returned as it is."""
        if _COMMIT.fullmatch(artifact.revision):
            return artifact.revision
        what = f"{artifact.origin}{f' at {artifact.revision}' if artifact.revision else ''}"
        if credential and not _TOKEN.fullmatch(credential):
            raise CredentialsInvalid(f"the token for {what} has characters that no token has, such as a line break; store it without them")
        revision = f"/revision/{quote(artifact.revision, safe='')}" if artifact.revision else ""
        url = f"{self._endpoint}/api/models/{artifact.origin}{revision}"
        headers = {"Authorization": f"Bearer {credential}"} if credential else {}
        # A renamed repository redirects.
        try:
            answer = await self._client.get(url, headers, size_max=_METADATA_BYTES_MAX, plain_http=self._endpoint.startswith("http://"))
        except HostRefused as error:
            raise Unsupported(f"cache.hubEndpoint: the worker does not connect to {self._host}: {error}") from None
        if answer.status != HTTPStatus.OK:
            raise error_for(answer, self._host, what, with_credential=bool(credential)) or ServerError(
                f"{self._host} returned {answer.status} for {what}"
            )
        try:
            commit = read_object(answer.body).get("sha")
        except ValueError as error:
            raise no_usable_answer(self._host, str(error)) from None
        if not (isinstance(commit, str) and _COMMIT.fullmatch(commit)):
            raise ServerError(f"{self._host} returned no commit for {what}")
        return commit


def error_for(answer: Answer, host: str, what: str, *, with_credential: bool) -> ModelplaneError | None:
    """Make the error for a response that says why it is no success; None for another one."""
    status = answer.status
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        if with_credential:
            return CredentialsInvalid(f"{host} refused the credential for {what} ({status})")
        return CredentialsInvalid(f"{host} requires a credential for {what}, or it does not exist ({status})")
    if status == HTTPStatus.NOT_FOUND:
        return InvalidInput(f"{what} does not exist on {host} ({status})")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Throttled(f"{host} limits the rate of requests ({status})")
    return None
