"""Access tokens of Google Cloud for a credential, and the clock that they depend on."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from google.auth import (
    compute_engine,
    exceptions,
    identity_pool,
    impersonated_credentials,
)
from google.auth.transport.requests import Request
from google.oauth2 import service_account

from activities.clouds.clock import clock_wrong, is_wrong, offset_of
from activities.clouds.gke.credential import (
    FEDERATION,
    IMPERSONATION,
    KEY,
    GoogleCredential,
)
from activities.clouds.gke.failures import translated
from activities.clouds.permitted import PermittedSources
from activities.clouds.provider import BearerToken
from api_types.errors import CredentialsInvalid

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_TIMEOUT_SECONDS = 30.0
_CLOCK_SECONDS = 5.0


def credentials_of(credential: GoogleCredential) -> Any:
    """Return google-auth's credentials. Raises CredentialsInvalid."""
    try:
        return _made(credential)
    except (ValueError, TypeError):
        # The library's message may quote the key.
        field = "private_key" if credential.kind == KEY else "credential_source"
        raise CredentialsInvalid(
            f"{field} of the credential is malformed: store the file as Google Cloud wrote it"
        ) from None


def _made(credential: GoogleCredential) -> Any:
    if credential.kind == KEY:
        return service_account.Credentials.from_service_account_info(
            dict(credential.info), scopes=[SCOPE]
        )
    if credential.kind == FEDERATION:
        return identity_pool.Credentials.from_info(
            dict(credential.info), scopes=[SCOPE]
        )
    if credential.kind == IMPERSONATION and credential.source is not None:
        return impersonated_credentials.Credentials(
            _made(credential.source),
            credential.email,
            [SCOPE],
            iam_endpoint_override=credential.info["service_account_impersonation_url"],
        )
    return compute_engine.Credentials(scopes=[SCOPE])


def permit(
    credential: GoogleCredential, permitted: PermittedSources, project: str
) -> None:
    """Raise CredentialsInvalid if a credential may not be used in a project.

    A cluster or a kubeconfig may name another project than the credential.
    """
    if credential.of_worker:
        permitted.check_account(project, "the project of the cluster")


def fetch_token(
    credentials: Any, clock_offset: Callable[[], float | None]
) -> BearerToken:
    """Fetch an access token with `credentials`.

    Raises CredentialsInvalid if Google rejects them, WorkerClockWrong if only the clock
    is the reason, and ServerError if Google does not respond.
    """
    doing = "fetch an access token"
    try:
        with translated(doing):
            credentials.refresh(partial(Request(), timeout=_TIMEOUT_SECONDS))
    except CredentialsInvalid as error:
        raise of_clock(error, doing, clock_offset) from None
    expiry: datetime | None = credentials.expiry
    if not credentials.token or expiry is None:
        raise CredentialsInvalid("Google returned no access token for the credential")
    # google-auth returns the time without its zone, which is UTC.
    return BearerToken(str(credentials.token), expiry.replace(tzinfo=UTC).timestamp())


def of_clock(
    error: CredentialsInvalid, doing: str, clock_offset: Callable[[], float | None]
) -> CredentialsInvalid:
    """Return the error, or WorkerClockWrong if Google's clock differs.

    Clients sign tokens themselves, and Google's answer to a wrong time is the same as
    to a wrong key. So the clocks are compared after each rejection.
    """
    offset = clock_offset()
    return clock_wrong(doing, "Google", offset) if is_wrong(offset) else error


def measured_offset(url: str) -> float | None:
    """Return the difference to the clock of a server, or None if it does not respond.

    The request carries no credential.
    """
    try:
        answer = Request()(
            url, method="HEAD", timeout=_CLOCK_SECONDS, allow_redirects=False
        )
    except exceptions.TransportError:
        return None
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return offset_of(headers, time.time())
