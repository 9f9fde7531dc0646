"""Sessions of botocore for a credential: keys, an assumed role, or the worker's role.

The worker's identity is found as AWS's own programs find it, but only among roles: web
identity (IRSA), then the role of the container (EKS Pod Identity, ECS), then that of
the instance. Profiles, keys in environment variables and programs are not used.
"""

import logging
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    AssumeRoleWithWebIdentityCredentialFetcher,
    AssumeRoleWithWebIdentityProvider,
    ContainerProvider,
    CredentialProvider,
    CredentialResolver,
    Credentials,
    DeferredRefreshableCredentials,
    InstanceMetadataProvider,
)
from botocore.loaders import Loader, create_loader
from botocore.utils import InstanceMetadataFetcher

from activities.clouds.eks.credential import WORKER, AwsCredential
from activities.clouds.permitted import PermittedSources
from api_types.errors import CredentialsInvalid

SESSION_NAME = "modelplane"

# botocore logs each refused refresh with its traceback. The error has the reason.
logging.getLogger("botocore.credentials").setLevel(logging.ERROR)

ATTEMPTS = 3
READ_SECONDS = 60
CONNECT_SECONDS = 10
_POOL_CONNECTIONS = 16
_METADATA_SECONDS = 2.0
_METADATA_ATTEMPTS = 2
_TOKEN_MAX = 64 << 10


class _Given(CredentialProvider):  # type: ignore[misc]  # the library has no types
    """Provides the credentials of one session."""

    METHOD = "modelplane"

    def __init__(self, load: Callable[[], Any]) -> None:
        super().__init__()
        self._load = load

    def load(self) -> Any:
        return self._load()


def session_of(
    credential: AwsCredential,
    region: str,
    endpoint_url: str | None,
    permitted: PermittedSources,
) -> botocore.session.Session:
    """Return a session of one credential. Nothing is requested before its first call.

    Its `get_credentials` and its calls raise CredentialsInvalid if the worker has no
    identity or may not use it there, and botocore's errors if a role cannot be assumed.
    """
    session = _core()
    loaded = _Given(lambda: _credentials(credential, region, endpoint_url, permitted))
    session.register_component("credential_provider", CredentialResolver([loaded]))
    return session


def client_config() -> Config:
    """Return the configuration of all clients.

    Activities retry calls. This setting only covers broken connections.
    """
    return Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=_POOL_CONNECTIONS,
        parameter_validation=True,
        ignore_configured_endpoint_urls=True,
    )


def _credentials(
    credential: AwsCredential,
    region: str,
    endpoint_url: str | None,
    permitted: PermittedSources,
) -> Any:
    role, sts = credential.role, _sts(region, endpoint_url)
    if role is not None and role.token_file:
        by_token = AssumeRoleWithWebIdentityCredentialFetcher(
            sts,
            _TokenFile(role.token_file),
            role.arn,
            extra_args={"RoleSessionName": SESSION_NAME},
        )
        return _refreshable("web-identity", by_token.fetch_credentials)
    if credential.key:
        source = Credentials(credential.key, credential.secret, credential.session)
    else:
        source = _of_worker(sts)
    if role is not None:
        extra = {"RoleSessionName": SESSION_NAME}
        if role.external_id:
            extra["ExternalId"] = role.external_id
        assumed = AssumeRoleCredentialFetcher(sts, source, role.arn, extra_args=extra)
        return _refreshable("assume-role", assumed.fetch_credentials)
    if credential.is_of_worker:
        # Only STS knows the account of the identity.
        account = str(_as(sts, source).get_caller_identity()["Account"])
        permitted.check_account(account, f"credential_source = {WORKER}")
    return source


class _TokenFile:
    """Reads a token. botocore calls it before each exchange, because tokens rotate."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self) -> str:
        try:
            with Path(self._path).open(encoding="utf-8") as file:
                return file.read(_TOKEN_MAX)
        except (OSError, UnicodeDecodeError) as error:
            raise CredentialsInvalid(
                f"the token file {self._path} of the worker cannot be read "
                f"({type(error).__name__}): mount the token there"
            ) from None


def _of_worker(sts: Callable[..., Any]) -> Any:
    metadata = InstanceMetadataFetcher(
        timeout=_METADATA_SECONDS, num_attempts=_METADATA_ATTEMPTS
    )
    providers = (
        AssumeRoleWithWebIdentityProvider(dict, sts, "", token_loader_cls=_TokenFile),
        ContainerProvider(),
        InstanceMetadataProvider(metadata),
    )
    try:
        found = CredentialResolver(list(providers)).load_credentials()
    except (ValueError, KeyError, OSError) as error:
        raise CredentialsInvalid(
            "the worker's own identity of AWS cannot be read "
            f"({type(error).__name__}): check the AWS_ variables of the worker"
        ) from None
    if found is None:
        raise CredentialsInvalid(
            "the credential uses the worker's own identity, and the worker has none: give "
            "it a role of the instance, of the container or by web identity, or store "
            "another credential"
        )
    return found


def _refreshable(method: str, fetch: Callable[[], Any]) -> Any:
    return DeferredRefreshableCredentials(refresh_using=fetch, method=method)


def _as(sts: Callable[..., Any], source: Any) -> Any:
    keys = source.get_frozen_credentials()
    return sts(
        "sts",
        aws_access_key_id=keys.access_key,
        aws_secret_access_key=keys.secret_key,
        aws_session_token=keys.token,
    )


def _sts(region: str, endpoint_url: str | None) -> Callable[..., Any]:
    """Return a function that creates clients of STS, as the fetchers expect it."""

    def create(service: str, config: Config | None = None, **keys: str | None) -> Any:
        merged = client_config() if config is None else client_config().merge(config)
        return _core().create_client(
            service,
            region_name=region,
            endpoint_url=endpoint_url,
            config=merged,
            **keys,
        )

    return create


def _core() -> botocore.session.Session:
    """Return a session that reads no profile files and has no credentials."""
    nothing = (None, None, os.devnull, None)
    files = {
        "profile": (None, None, None, None),
        "config_file": nothing,
        "credentials_file": nothing,
    }
    session = botocore.session.Session(session_vars=files)
    session.register_component("data_loader", _models())
    session.register_component(
        "credential_provider", CredentialResolver([_Given(lambda: None)])
    )
    return session


@cache
def _models() -> Loader:
    """Return the service models for all sessions, because loading them takes a second."""
    return create_loader()
