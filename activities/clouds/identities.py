"""Tokens for existing clusters, from the credential of an `identitySecretRef`.

The credentials have the same form as for creating clusters. A server that gets a token could use
it elsewhere: a Google token for the whole project, and an AWS token for the named
cluster, from any address. A kubeconfig is input, and may come from another person than
the credential. So the worker gets the address of the cluster from the cloud, and sends
a token to no other address.

Tokens are short-lived and never leave the process. They are cached by the digest of the
credential, because each Helm run reads it again.
"""

import hashlib
import re
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from activities.clouds.eks.access import endpoint_of, token_of
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.credential import AwsCredential, read_credential
from activities.clouds.gke.access import cluster_path, endpoints_of
from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.clients import CredentialClients, GoogleClients
from activities.clouds.lifecycle.threads import AccountThreads, InThread
from activities.clouds.permitted import PermittedSources
from activities.clouds.provider import ApiServerEndpoint, BearerToken
from api_types.errors import CredentialsInvalid, NotYet, PermissionDenied, Unsupported

GOOGLE, AWS = "GoogleApplicationCredentials", "AWSWebIdentityCredentials"

_ARN = re.compile(r"arn:aws[a-z-]*:eks:([a-z0-9-]+):[0-9]+:cluster/([A-Za-z0-9_-]+)")
_EKSCTL = re.compile(r"([A-Za-z0-9_-]+)\.([a-z0-9-]+)\.eksctl\.io")
_HOST = re.compile(
    r"https://[A-Za-z0-9-]+\.[A-Za-z0-9]+\.([a-z0-9-]+)\.eks\.amazonaws\.com(\.cn)?(:[0-9]+)?"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_KEPT_MAX = 1000


class CloudIdentities:
    """The identities of a worker.

    `google` and `aws` create clients for a credential. They are called in several
    threads. Tests replace them.
    """

    def __init__(
        self,
        google: Callable[[str], GoogleClients] = CredentialClients,
        aws: Callable[[AwsCredential, str], AwsClients] = AwsClients,
        clock: Callable[[], float] = time.time,
        permitted: PermittedSources | None = None,
    ) -> None:
        self._permitted = permitted or PermittedSources()
        self._google = google
        self._aws = aws
        self._threads = AccountThreads()
        self.clock = clock
        self.kept: dict[str, BearerToken] = {}

    async def reach(
        self, kind: str, credential: str, name: str, server: str
    ) -> tuple["IdentityTokens", str, str]:
        """Return the tokens, server and certificate authority of a cluster.

        `name` is the cluster's name in the kubeconfig. The cloud reports server and
        certificate authority. The authority is empty for a server with a public
        certificate. Raises CredentialsInvalid if the credential is unusable or `server`
        is not that of the cluster, PermissionDenied if it lacks the right to read the
        cluster, and other errors of the cloud.
        """
        in_thread = self._threads.named(kind, _digest(credential))
        make, digest, endpoints = await in_thread(
            self._known_to_cloud, kind, credential, name, server
        )
        address = _address(server)
        for each in endpoints:
            if address is not None and _address(each.server) == address:
                tokens = IdentityTokens(self, digest, make, in_thread)
                return tokens, each.server, each.authority
        there = ", ".join(each.server for each in endpoints) or "no address"
        raise CredentialsInvalid(
            f"the cloud reports {there} for cluster {name}, and the kubeconfig says "
            f"{server}: no token is sent there; correct the server in the kubeconfig"
        )

    def _known_to_cloud(
        self, kind: str, credential: str, name: str, server: str
    ) -> tuple[Callable[[], BearerToken], str, list[ApiServerEndpoint]]:
        """Return a token factory, the key of cached tokens, and endpoints."""
        if kind == GOOGLE:
            google, path = self._google(credential), cluster_path(name)
            google.permit(path.split("/")[1])
            try:
                return (
                    google.token,
                    _digest(kind, credential),
                    endpoints_of(GoogleApi(google), path),
                )
            except PermissionDenied as error:
                raise _may_not_ask(name, "container.clusters.get", error) from None
        if kind == AWS:
            cluster, region = eks_cluster(name, server)
            aws = self._aws(read_credential(credential, self._permitted), region)
            try:
                endpoint = endpoint_of(
                    aws, cluster, arn=name if _ARN.fullmatch(name) else ""
                )
            except PermissionDenied as error:
                raise _may_not_ask(name, "eks:DescribeCluster", error) from None
            except NotYet as error:
                raise CredentialsInvalid(
                    f"{error.message}, or it is in another account or region"
                ) from None
            return (
                (lambda: token_of(aws, cluster)),
                _digest(kind, region, cluster, credential),
                [endpoint],
            )
        raise Unsupported(
            f"credentials of type {kind} are not supported; use {GOOGLE} or {AWS}"
        )


class IdentityTokens:
    def __init__(
        self,
        identities: CloudIdentities,
        digest: str,
        make: Callable[[], BearerToken],
        in_thread: InThread,
    ) -> None:
        self._identities = identities
        self._digest = digest
        self._make = make
        self._in_thread = in_thread

    async def __call__(self, seconds: float, *, refused: str = "") -> tuple[str, float]:
        """Return a token and when it expires, but never the refused token.

        The token is valid for at least `seconds`, or is the newest one. Raises
        CredentialsInvalid, and ServerError if the cloud does not respond.
        """
        kept = self._identities.kept
        known = kept.get(self._digest)
        if (
            known is None
            or known.text == refused
            or known.expires_at - self._identities.clock() < seconds
        ):
            known = kept[self._digest] = await self._in_thread(self._make)
            while len(kept) > _KEPT_MAX:
                del kept[next(iter(kept))]
        return known.text, known.expires_at


def _may_not_ask(name: str, action: str, error: PermissionDenied) -> PermissionDenied:
    return PermissionDenied(
        f"a token is sent only to the address that the cloud reports for cluster {name}; "
        f"grant {action}, which reads it: {error.message}"
    )


def _address(url: str) -> tuple[str, int | None, str] | None:
    """Return host, port and path of an HTTPS URL in a comparable form, else None."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme != "https" or not parts.hostname or parts.username is not None:
        return None
    return parts.hostname, port or 443, parts.path.rstrip("/")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def eks_cluster(name: str, server: str) -> tuple[str, str]:
    """Return name and region of an EKS cluster.

    `name` is its name in the kubeconfig, an ARN or a name. Raises CredentialsInvalid if
    neither it nor the server shows the region, because a token is for one cluster in
    one region.
    """
    if arn := _ARN.fullmatch(name):
        return arn[2], arn[1]
    if written := _EKSCTL.fullmatch(name):
        return written[1], written[2]
    host = _HOST.fullmatch(server)
    if host is None or not _NAME.fullmatch(name):
        raise CredentialsInvalid(
            "a token needs name and region of the EKS cluster: name it by its ARN in the "
            "clusters of the kubeconfig, as `aws eks update-kubeconfig` does"
        )
    return name, host[1]
