"""The Hugging Face hub, as far as pinning a revision needs it: one request for metadata."""

import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import quote

import httpx

from activities.render.cache.artifact import Artefact
from api_types.errors import CredentialsInvalid, InvalidInput, ModelplaneError, ServerError, Throttled

ENDPOINT = "https://huggingface.co"
TIMEOUT = httpx.Timeout(10.0)
_COMMIT = re.compile(r"[0-9a-f]{40}")

Send = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


class HuggingFaceHub:
    """The hub at `endpoint`; empty means the public one."""

    def __init__(self, endpoint: str = "") -> None:
        self._endpoint = (endpoint or ENDPOINT).rstrip("/")

    async def resolve(self, artefact: Artefact, credential: str) -> str:
        """Give the commit that the revision means now; one that is a commit already is believed."""
        if _COMMIT.fullmatch(artefact.revision):
            return artefact.revision
        what = f"{artefact.origin}{f' at {artefact.revision}' if artefact.revision else ''}"
        revision = f"/revision/{quote(artefact.revision, safe='')}" if artefact.revision else ""
        url = f"{self._endpoint}/api/models/{artefact.origin}{revision}"
        headers = {"Authorization": f"Bearer {credential}"} if credential else {}
        # A renamed repository redirects; the client takes the token along only within the same origin.
        answer = await asked(url, lambda http: http.get(url, headers=headers, follow_redirects=True))
        if answer.status_code != HTTPStatus.OK:
            raise refusal(answer, what, with_credential=bool(credential))
        commit = str(_json(answer).get("sha") or "")
        if not _COMMIT.fullmatch(commit):
            raise ServerError(f"{self._endpoint} answered without a commit for {what}")
        return commit


async def asked(url: str, send: Send) -> httpx.Response:
    """Send one request. Raises ServerError if nobody answers."""
    host = httpx.URL(url).netloc.decode()
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT) as http:
            return await send(http)
    except httpx.HTTPError as error:
        raise ServerError(f"no answer from {host}: {str(error) or type(error).__name__}; check that the worker can reach it") from error


def refusal(answer: httpx.Response, what: str, *, with_credential: bool) -> ModelplaneError:
    """Make the error for an answer that is no success."""
    host, status = answer.request.url.netloc.decode(), answer.status_code
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        if with_credential:
            return CredentialsInvalid(f"{host} refused the credential for {what} ({status})")
        return CredentialsInvalid(f"{host} shows {what} to nobody without a credential, or has no such thing ({status})")
    if status == HTTPStatus.NOT_FOUND:
        return InvalidInput(f"{host} has no {what} ({status})")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Throttled(f"{host} asks to slow down ({status})")
    return ServerError(f"{host} answered {status} for {what}")


def _json(answer: httpx.Response) -> dict[str, object]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
