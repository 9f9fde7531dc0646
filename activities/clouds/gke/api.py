"""Calls to Google Cloud by the names of desired calls: timeouts, who retries, and what errors mean, in one place.

Reads may be repeated by the library for a few seconds; writes never are, because whoever repeats them looks first.
"""

from collections.abc import Mapping
from typing import Any

from google.api_core import exceptions
from google.auth import exceptions as auth

from activities.clouds.gke.clients import TIMEOUT_SECONDS, GoogleClients
from activities.clouds.gke.failures import failure_of, is_there_already, translated

Request = Mapping[str, Any]


class GoogleApi:
    """Calls with the clients of one credential. Every method blocks and raises errors of `api_types.errors` only."""

    def __init__(self, clients: GoogleClients) -> None:
        self._clients = clients

    def read(self, service: str, operation: str, request: Request) -> Any:
        """Give the answer of a call that changes nothing; lists are read whole. Raises NotYet for what does not exist."""
        with translated(_words(service, operation)):
            return self._method(service, operation)(request=dict(request), timeout=TIMEOUT_SECONDS)

    def find(self, service: str, operation: str, request: Request) -> Any | None:
        """Give an object, or None if it does not exist."""
        with translated(_words(service, operation)):
            try:
                return self._method(service, operation)(request=dict(request), timeout=TIMEOUT_SECONDS)
            except exceptions.NotFound:
                return None

    def every(self, service: str, operation: str, request: Request) -> list[Any]:
        """Give all items of a list, page by page; no items of a place that does not exist."""
        with translated(_words(service, operation)):
            try:
                return list(self._method(service, operation)(request=dict(request), timeout=TIMEOUT_SECONDS))
            except exceptions.NotFound:
                return []

    def create(self, service: str, operation: str, request: Request) -> Any | None:
        """Create; None if an object of the name exists."""
        with translated(_words(service, operation)):
            try:
                return self._written(service, operation, request)
            except exceptions.Conflict as error:
                if is_there_already(error):
                    return None
                raise

    def change(self, service: str, operation: str, request: Request) -> Any:
        """Change something that exists."""
        with translated(_words(service, operation)):
            return self._written(service, operation, request)

    def delete(self, service: str, operation: str, request: Request) -> Any | None:
        """Begin to delete; None if the object does not exist. Raises Dependency while another one uses it."""
        with translated(_words(service, operation), deleting=True):
            try:
                return self._written(service, operation, request)
            except exceptions.NotFound:
                return None

    def change_policy(self, request: Any) -> bool:
        """Write a policy of the project; False if it was changed since it was read."""
        with translated(_words("resourcemanager.projects", "set_iam_policy")):
            try:
                self._written("resourcemanager.projects", "set_iam_policy", request)
            except exceptions.Aborted:
                return False
            return True

    def is_done(self, operation: Any, doing: str) -> bool:
        """Whether a long-running operation ended. Raises the error that it ended with."""
        with translated(doing):
            if not operation.done():
                return False
            if error := operation.exception(timeout=TIMEOUT_SECONDS):
                raise failure_of(error, doing)
        return True

    def _written(self, service: str, operation: str, request: Any) -> Any:
        return self._method(service, operation)(request=request, timeout=TIMEOUT_SECONDS, retry=None)

    def _method(self, service: str, operation: str) -> Any:
        try:
            return getattr(self._clients.client(service), operation)
        except auth.GoogleAuthError:
            raise
        except (KeyError, AttributeError):
            raise ValueError(f"no call {service}.{operation}") from None


def _words(service: str, operation: str) -> str:
    return f"{service} {operation.removesuffix('_unary').replace('_', ' ')}"
