"""Make calls to Google Cloud, with timeouts and retries.

The library may repeat reads for a few seconds. It never repeats writes, because the
lifecycle observes the object before it repeats a write.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from google.api_core import exceptions
from google.auth import exceptions as auth

from activities.clouds.gke.clients import TIMEOUT_SECONDS, GoogleClients
from activities.clouds.gke.failures import failure_of, is_there_already, translated
from activities.clouds.gke.tokens import of_clock
from api_types.errors import CredentialsInvalid, ServerError

Request = Mapping[str, Any]


class GoogleApi:
    """Calls with the clients of one credential.

    Every method blocks and raises only the errors of `api_types.errors`.
    """

    def __init__(self, clients: GoogleClients) -> None:
        self._clients = clients

    def read(self, service: str, operation: str, request: Request) -> Any:
        """Return the response of a read. Raises NotYet if the object does not exist."""
        with self._translated(_words(service, operation)):
            return self._method(service, operation)(
                request=dict(request), timeout=TIMEOUT_SECONDS
            )

    def find(self, service: str, operation: str, request: Request) -> Any | None:
        """Return an object, or None if it does not exist."""
        with self._translated(_words(service, operation)):
            try:
                return self._method(service, operation)(
                    request=dict(request), timeout=TIMEOUT_SECONDS
                )
            except exceptions.NotFound:
                return None

    def every(
        self, service: str, operation: str, request: Request, region: str = ""
    ) -> list[Any]:
        """Return all items of a list. An unknown location has no items.

        Raises ServerError if the list lacks the items of a location in the region.
        """
        words = _words(service, operation)
        with self._translated(words):
            try:
                pager = self._method(service, operation)(
                    request=dict(request), timeout=TIMEOUT_SECONDS
                )
                items = list(pager)
            except exceptions.NotFound:
                return []
        unreachable = getattr(pager, "unreachable", ()) if region else ()
        lacking = [each for each in unreachable if f"/{region}" in each]
        if lacking:
            raise ServerError(f"{words}: no answer from {', '.join(lacking)}")
        return items

    def create(self, service: str, operation: str, request: Request) -> Any | None:
        """Create an object. Returns None if an object of that name exists."""
        with self._translated(_words(service, operation)):
            try:
                return self._written(service, operation, request)
            except exceptions.Conflict as error:
                if is_there_already(error):
                    return None
                raise

    def change(self, service: str, operation: str, request: Request) -> Any:
        """Change an existing object."""
        with self._translated(_words(service, operation)):
            return self._written(service, operation, request)

    def delete(self, service: str, operation: str, request: Request) -> Any | None:
        """Start a deletion.

        Returns None if the object does not exist.

        Raises Dependency while another object uses it.
        """
        with self._translated(_words(service, operation), deleting=True):
            try:
                return self._written(service, operation, request)
            except exceptions.NotFound:
                return None

    def change_policy(self, request: Any) -> bool:
        """Write a policy of the project.

        Returns False if it changed since it was read.
        """
        with self._translated(_words("resourcemanager.projects", "set_iam_policy")):
            try:
                self._written("resourcemanager.projects", "set_iam_policy", request)
            except exceptions.Aborted:
                return False
            return True

    def is_done(self, operation: Any, doing: str) -> bool:
        """Return True if a long-running operation ended.

        Raises the operation's error.
        """
        with self._translated(doing):
            if not operation.done():
                return False
            if error := operation.exception(timeout=TIMEOUT_SECONDS):
                raise failure_of(error, doing)
        return True

    @contextmanager
    def _translated(self, doing: str, *, deleting: bool = False) -> Iterator[None]:
        try:
            with translated(doing, deleting=deleting):
                yield
        except CredentialsInvalid as error:
            raise of_clock(error, doing, self._clients.clock_offset) from None

    def _written(self, service: str, operation: str, request: Any) -> Any:
        return self._method(service, operation)(
            request=request, timeout=TIMEOUT_SECONDS, retry=None
        )

    def _method(self, service: str, operation: str) -> Any:
        try:
            return getattr(self._clients.client(service), operation)
        except auth.GoogleAuthError:
            raise
        except (KeyError, AttributeError):
            raise ValueError(f"no call {service}.{operation}") from None


def _words(service: str, operation: str) -> str:
    return f"{service} {operation.removesuffix('_unary').replace('_', ' ')}"
