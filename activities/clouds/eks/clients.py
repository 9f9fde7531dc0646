"""The clients of AWS for one credential in one region, and every call that is made with them.

Thread-safe: clients are, sessions are not, so clients are made one at a time and then kept.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import boto3
import botocore.session
from botocore import exceptions as aws
from botocore.config import Config
from botocore.loaders import Loader, create_loader

from activities.clouds.eks.credential import AwsCredential
from activities.clouds.eks.failures import Purpose, failure, says_exists, says_missing, says_role
from api_types.clock import utc_now
from api_types.errors import InvalidInput

ATTEMPTS = 3
READ_SECONDS = 60
CONNECT_SECONDS = 10
_POOL_CONNECTIONS = 16
# A list that does not end is a defect of the other side.
_PAGES_MAX = 200

Answer = dict[str, Any]


class AwsClients:
    """Makes calls, and turns what AWS refuses them with into errors of this project.

    `endpoint_url` is that of a server in place of AWS. `seconds` is the clock, in seconds since 1970.
    """

    def __init__(
        self,
        credential: AwsCredential,
        region: str,
        endpoint_url: str | None = None,
        seconds: Callable[[], float] = lambda: utc_now().timestamp(),
    ) -> None:
        self.region = region
        self.seconds = seconds
        self.credential = credential
        self._endpoint_url = endpoint_url
        self._session = boto3.session.Session(
            aws_access_key_id=credential.key,
            aws_secret_access_key=credential.secret,
            aws_session_token=credential.session,
            region_name=region,
            botocore_session=_core(),
        )
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()

    def read(self, service: str, operation: str, **parameters: Any) -> Answer:
        """Make a call that changes nothing; what does not exist is an empty answer."""
        return self.call(service, operation, parameters, Purpose.READ) or {}

    def listed(self, service: str, operation: str, result: str, **parameters: Any) -> Iterator[Any]:
        """Give all items of a list, over all its pages."""
        client = self._client(service, operation)
        if not client.can_paginate(operation):
            yield from self.read(service, operation, **parameters).get(result, ())
            return
        pages = iter(client.get_paginator(operation).paginate(**parameters))
        for _ in range(_PAGES_MAX):
            page = self._made_call(lambda: next(pages, None), service, operation, parameters, Purpose.READ)
            if page is None:
                return
            yield from page.get(result, ())

    def operations(self, service: str) -> Mapping[str, str]:
        """Give AWS's names of the operations of a service, by those of boto3."""
        names: Mapping[str, str] = self._client(service, "any").meta.method_to_api_mapping
        return names

    def create(self, service: str, operation: str, **parameters: Any) -> Answer | None:
        """Create something; None where it is there already."""
        return self.call(service, operation, parameters, Purpose.CREATE)

    def update(self, service: str, operation: str, **parameters: Any) -> Answer:
        """Change something."""
        return self.call(service, operation, parameters, Purpose.UPDATE) or {}

    def delete(self, service: str, operation: str, **parameters: Any) -> None:
        """Delete something; that it is not there is success."""
        self.call(service, operation, parameters, Purpose.DELETE)

    def call(self, service: str, operation: str, parameters: Mapping[str, Any], purpose: Purpose) -> Answer | None:
        """Make a call; None where what it reads or deletes does not exist, or what it creates does. Raises the errors of `failures`."""
        client = self._client(service, operation)
        return self._made_call(lambda: getattr(client, operation)(**parameters), service, operation, parameters, purpose)

    def create_cluster(self, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Create a control plane. Gives nothing if that was accepted; where EKS refuses one of the zones, those that it takes."""
        client = self._client("eks", "create_cluster")
        try:
            client.create_cluster(**parameters)
        except aws.ClientError as error:
            zones = error.response.get("validZones")
            if isinstance(zones, list) and zones:
                return tuple(str(zone) for zone in zones)
            if says_exists(error):
                return ()
            raise self._failure(error, "eks", "create_cluster", parameters, Purpose.CREATE) from None
        except aws.BotoCoreError as error:
            raise self._failure(error, "eks", "create_cluster", parameters, Purpose.CREATE) from None
        return ()

    def _made_call(
        self, made: Callable[[], Answer | None], service: str, operation: str, parameters: Mapping[str, Any], purpose: Purpose
    ) -> Answer | None:
        try:
            return made()
        except aws.ClientError as error:
            if purpose in (Purpose.READ, Purpose.DELETE) and says_missing(error):
                return None
            if purpose is Purpose.CREATE and says_exists(error):
                return None
            # Without its cause: that has the request in it.
            raise self._failure(error, service, operation, parameters, purpose) from None
        except aws.BotoCoreError as error:
            raise self._failure(error, service, operation, parameters, purpose) from None

    def _failure(self, error: Exception, service: str, operation: str, parameters: Mapping[str, Any], purpose: Purpose) -> Exception:
        role = parameters.get("roleArn") or parameters.get("nodeRole")
        age = self._role_age(str(role)) if role and isinstance(error, aws.ClientError) and says_role(error) else None
        return failure(error, service, operation, purpose, hide=self.credential.hidden, role_seconds=age)

    def _role_age(self, arn: str) -> float:
        """Give how long ago a role was created, in seconds; one that IAM does not know yet was created just now."""
        found = self.read("iam", "get_role", RoleName=arn.rpartition("/")[2]).get("Role")
        return self.seconds() - found["CreateDate"].timestamp() if found else 0.0

    def _client(self, service: str, operation: str) -> Any:
        with self._lock:
            if service not in self._made:
                try:
                    self._made[service] = self._session.client(service, endpoint_url=self._endpoint_url, config=_config())
                except (aws.BotoCoreError, ValueError) as error:
                    raise InvalidInput(f"{service} {operation}: no client for region {self.region} ({type(error).__name__})") from None
            return self._made[service]


def _config() -> Config:
    # One place retries: the activity. What stands here covers a connection that breaks.
    return Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=_POOL_CONNECTIONS,
        parameter_validation=True,
        ignore_configured_endpoint_urls=True,
    )


def _core() -> Any:
    """Make a session that reads no files of a profile: what it logs in with are only the keys that it is given."""
    nothing = (None, None, os.devnull, None)
    files = {"profile": (None, None, None, None), "config_file": nothing, "credentials_file": nothing}
    session = botocore.session.Session(session_vars=files)
    session.register_component("data_loader", _models())
    return session


@cache
def _models() -> Loader:
    """Return the loader of the services' models for all sessions: reading them takes a second."""
    return create_loader()
