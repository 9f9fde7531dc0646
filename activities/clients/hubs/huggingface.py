"""The Hugging Face hub, as far as resolving a revision needs it: one request for metadata."""

import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import quote

import httpx

from activities.render.cache.artifact import Artifact
from api_types.errors import CredentialsInvalid, InvalidInput, ModelplaneError, ServerError, Throttled

ENDPOINT = "https://huggingface.co"
TIMEOUT = httpx.Timeout(10.0)
_COMMIT = re.compile(r"[0-9a-f]{40}")

Send = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


class HuggingFaceHub:
    """The hub at `endpoint`; empty means the public one."""

    def __init__(self, endpoint: str = "") -> None:
        self._endpoint = (endpoint or ENDPOINT).rstrip("/")

    async def resolve(self, artifact: Artifact, credential: str) -> str:
        """Give the commit that the revision points to; a revision that is a commit is returned as it is."""
        if _COMMIT.fullmatch(artifact.revision):
            return artifact.revision
        what = f"{artifact.origin}{f' at {artifact.revision}' if artifact.revision else ''}"
        revision = f"/revision/{quote(artifact.revision, safe='')}" if artifact.revision else ""
        url = f"{self._endpoint}/api/models/{artifact.origin}{revision}"
        headers = {"Authorization": f"Bearer {credential}"} if credential else {}
        # A renamed repository redirects; the client sends the token only within the same origin.
        response = await send_request(url, lambda http: http.get(url, headers=headers, follow_redirects=True))
        if response.status_code != HTTPStatus.OK:
            raise error_for(response, what, with_credential=bool(credential))
        commit = str(_json(response).get("sha") or "")
        if not _COMMIT.fullmatch(commit):
            raise ServerError(f"{self._endpoint} returned no commit for {what}")
        return commit


async def send_request(url: str, send: Send) -> httpx.Response:
    """Send one request. Raises ServerError without a response."""
    host = httpx.URL(url).netloc.decode()
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT) as http:
            return await send(http)
    except httpx.HTTPError as error:
        raise ServerError(f"no response from {host}: {str(error) or type(error).__name__}; check that the worker can reach it") from error


def error_for(response: httpx.Response, what: str, *, with_credential: bool) -> ModelplaneError:
    """Make the error for a response that is no success."""
    host, status = response.request.url.netloc.decode(), response.status_code
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        if with_credential:
            return CredentialsInvalid(f"{host} refused the credential for {what} ({status})")
        return CredentialsInvalid(f"{host} requires a credential for {what}, or it does not exist ({status})")
    if status == HTTPStatus.NOT_FOUND:
        return InvalidInput(f"{what} does not exist on {host} ({status})")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Throttled(f"{host} limits the rate of requests ({status})")
    return ServerError(f"{host} returned {status} for {what}")


def _json(response: httpx.Response) -> dict[str, object]:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
