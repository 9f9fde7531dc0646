"""The clients of AWS for one credential in one region, and all calls with them.

boto3 clients are thread-safe and sessions are not, so clients are created one at a time
and then cached.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import boto3
from botocore import exceptions as aws

from activities.clouds.eks.credential import AwsCredential
from activities.clouds.eks.failures import (
    Purpose,
    failure,
    is_of_role,
    says_exists,
    says_missing,
    says_role,
)
from activities.clouds.eks.sessions import client_config, session_of
from activities.clouds.permitted import PermittedSources
from api_types.clock import utc_now
from api_types.errors import InvalidInput

# A longer list means a defect of the server.
_PAGES_MAX = 200

Answer = dict[str, Any]


class AwsClients:
    """Makes calls, and translates errors of AWS into errors of this project.

    `endpoint_url` replaces the address of AWS. `seconds` is the clock, in seconds since
    1970.
    """

    def __init__(
        self,
        credential: AwsCredential,
        region: str,
        endpoint_url: str | None = None,
        seconds: Callable[[], float] = lambda: utc_now().timestamp(),
        permitted: PermittedSources | None = None,
    ) -> None:
        self.region = region
        self.seconds = seconds
        self.credential = credential
        self._endpoint_url = endpoint_url
        core = session_of(
            credential, region, endpoint_url, permitted or PermittedSources()
        )
        self._session = boto3.session.Session(region_name=region, botocore_session=core)
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()

    def read(self, service: str, operation: str, **parameters: Any) -> Answer:
        """Make a read call. Returns an empty response if the object does not exist."""
        return self.call(service, operation, parameters, Purpose.READ) or {}

    def listed(
        self, service: str, operation: str, result: str, **parameters: Any
    ) -> Iterator[Any]:
        """Yield all items of a list, over all its pages."""
        client = self._client(service, operation)
        if not client.can_paginate(operation):
            yield from self.read(service, operation, **parameters).get(result, ())
            return
        pages = iter(client.get_paginator(operation).paginate(**parameters))
        for _ in range(_PAGES_MAX):
            page = self._made_call(
                lambda: next(pages, None), service, operation, parameters, Purpose.READ
            )
            if page is None:
                return
            yield from page.get(result, ())

    def operations(self, service: str) -> Mapping[str, str]:
        """Return AWS's names of the operations of a service, by the names in boto3."""
        names: Mapping[str, str] = self._client(
            service, "any"
        ).meta.method_to_api_mapping
        return names

    def create(self, service: str, operation: str, **parameters: Any) -> Answer | None:
        """Create an object. Returns None if it exists."""
        return self.call(service, operation, parameters, Purpose.CREATE)

    def update(self, service: str, operation: str, **parameters: Any) -> Answer:
        """Change an object."""
        return self.call(service, operation, parameters, Purpose.UPDATE) or {}

    def delete(self, service: str, operation: str, **parameters: Any) -> None:
        """Delete an object. A missing object is a success."""
        self.call(service, operation, parameters, Purpose.DELETE)

    def call(
        self,
        service: str,
        operation: str,
        parameters: Mapping[str, Any],
        purpose: Purpose,
    ) -> Answer | None:
        """Make a call.

        Returns None if the object of a read or deletion does not exist, or if the
        object of a creation exists. Raises the errors of `failures`.
        """
        client = self._client(service, operation)
        answer: Answer | None = self._made_call(
            lambda: getattr(client, operation)(**parameters),
            service,
            operation,
            parameters,
            purpose,
        )
        return answer

    def create_cluster(self, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Create a control plane.

        Returns nothing if EKS accepts the call. If EKS rejects one of the zones,
        returns the usable zones.
        """
        client = self._client("eks", "create_cluster")
        try:
            client.create_cluster(**parameters)
        except aws.ClientError as error:
            zones = error.response.get("validZones")
            if isinstance(zones, list) and zones:
                return tuple(str(zone) for zone in zones)
            if says_exists(error):
                return ()
            raise self._failure(
                error, "eks", "create_cluster", parameters, Purpose.CREATE
            ) from None
        except aws.BotoCoreError as error:
            raise self._failure(
                error, "eks", "create_cluster", parameters, Purpose.CREATE
            ) from None
        return ()

    def keys(self) -> Any:
        """Return the current keys: key, secret and session token.

        Keys of a role are valid for at least ten minutes more, unless STS cannot renew
        them. Raises CredentialsInvalid.
        """
        return self._made_call(
            lambda: self._session.get_credentials().get_frozen_credentials(),
            "sts",
            "get_caller_identity",
            {},
            Purpose.UPDATE,
        )

    def _made_call(
        self,
        made: Callable[[], Any],
        service: str,
        operation: str,
        parameters: Mapping[str, Any],
        purpose: Purpose,
    ) -> Any:
        try:
            return made()
        except aws.ClientError as error:
            of_role = is_of_role(error)
            if (
                not of_role
                and purpose in (Purpose.READ, Purpose.DELETE)
                and says_missing(error)
            ):
                return None
            if not of_role and purpose is Purpose.CREATE and says_exists(error):
                return None
            # Drop the original exception, because it contains the request.
            raise self._failure(
                error, service, operation, parameters, purpose
            ) from None
        except aws.BotoCoreError as error:
            raise self._failure(
                error, service, operation, parameters, purpose
            ) from None

    def _failure(
        self,
        error: Exception,
        service: str,
        operation: str,
        parameters: Mapping[str, Any],
        purpose: Purpose,
    ) -> Exception:
        role = parameters.get("roleArn") or parameters.get("nodeRole")
        age = (
            self._role_age(str(role))
            if role and isinstance(error, aws.ClientError) and says_role(error)
            else None
        )
        return failure(
            error,
            service,
            operation,
            purpose,
            hide=self.credential.hidden,
            role_seconds=age,
            now=self.seconds(),
        )

    def _role_age(self, arn: str) -> float:
        """Return the age of a role in seconds.

        An unknown role counts as just created.
        """
        found = self.read("iam", "get_role", RoleName=arn.rpartition("/")[2]).get(
            "Role"
        )
        return self.seconds() - found["CreateDate"].timestamp() if found else 0.0

    def _client(self, service: str, operation: str) -> Any:
        with self._lock:
            if service not in self._made:
                self._made_call(
                    self._session.get_credentials,
                    service,
                    operation,
                    {},
                    Purpose.UPDATE,
                )
                try:
                    self._made[service] = self._session.client(
                        service, endpoint_url=self._endpoint_url, config=client_config()
                    )
                except (aws.BotoCoreError, ValueError) as error:
                    raise InvalidInput(
                        f"{service} {operation}: no client for region {self.region} "
                        f"({type(error).__name__})"
                    ) from None
            return self._made[service]
