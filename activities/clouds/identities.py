"""Tokens for clusters that exist at a cloud already, from the credential that an `identitySecretRef` names.

The credentials are those by which clusters are created: the JSON key of a service account, or the text of a shared-credentials file.
A token is good for more than the cluster that it is for: one of Google for a whole project, one of AWS for the cluster that it names,
wherever it comes from. A kubeconfig is input, and may be that of another person than the credential; so the cloud is asked where the
cluster is, and a token goes nowhere else.

Tokens are short-lived and stay in the process. They are kept by the digest of the credential, because each Helm run reads it anew.
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
from activities.clouds.gke.clients import GoogleClients, KeyClients
from activities.clouds.lifecycle.threads import AccountThreads, InThread
from activities.clouds.provider import BearerToken, Endpoint
from api_types.errors import CredentialsInvalid, NotYet, PermissionDenied, Unsupported

GOOGLE, AWS = "GoogleApplicationCredentials", "AWSWebIdentityCredentials"

_ARN = re.compile(r"arn:aws[a-z-]*:eks:([a-z0-9-]+):[0-9]+:cluster/([A-Za-z0-9_-]+)")
_EKSCTL = re.compile(r"([A-Za-z0-9_-]+)\.([a-z0-9-]+)\.eksctl\.io")
_HOST = re.compile(r"https://[A-Za-z0-9-]+\.[A-Za-z0-9]+\.([a-z0-9-]+)\.eks\.amazonaws\.com(\.cn)?(:[0-9]+)?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_KEPT_MAX = 1000


class CloudIdentities:
    """The identities of a worker. `google` and `aws` make clients of a credential, which tests replace, in several threads."""

    def __init__(
        self,
        google: Callable[[str], GoogleClients] = KeyClients,
        aws: Callable[[AwsCredential, str], AwsClients] = AwsClients,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._google = google
        self._aws = aws
        self._threads = AccountThreads()
        self.clock = clock
        self.kept: dict[str, BearerToken] = {}

    async def reach(self, kind: str, credential: str, name: str, server: str) -> tuple["Tokens", str, str]:
        """Give the tokens of a credential for the cluster that its kubeconfig calls so, with server and certificate authority.

        Both are what the cloud says; the authority is empty for a server with a public certificate. Raises CredentialsInvalid where the
        credential is of no use, or `server` is not that of the cluster; PermissionDenied where it may not ask; and what clouds say.
        """
        in_thread = self._threads.named(kind, _digest(credential))
        make, digest, endpoints = await in_thread(self._known_to_cloud, kind, credential, name, server)
        for each in endpoints:
            if _address(server) is not None and _address(each.server) == _address(server):
                return Tokens(self, digest, make, in_thread), each.server, each.authority
        there = ", ".join(each.server for each in endpoints) or "nowhere"
        raise CredentialsInvalid(f"cluster {name} is at {there}, and the kubeconfig says {server}: no token is sent there")

    def _known_to_cloud(self, kind: str, credential: str, name: str, server: str) -> tuple[Callable[[], BearerToken], str, list[Endpoint]]:
        """Give what makes tokens for a cluster, by which digest these are kept, and the addresses of the cluster."""
        if kind == GOOGLE:
            google, path = self._google(credential), cluster_path(name)
            try:
                return google.token, _digest(kind, credential), endpoints_of(GoogleApi(google), path)
            except PermissionDenied as error:
                raise _may_not_ask(name, "container.clusters.get", error) from None
        if kind == AWS:
            cluster, region = eks_cluster(name, server)
            aws = self._aws(read_credential(credential), region)
            try:
                endpoint = endpoint_of(aws, cluster, arn=name if _ARN.fullmatch(name) else "")
            except PermissionDenied as error:
                raise _may_not_ask(name, "eks:DescribeCluster", error) from None
            except NotYet as error:
                raise CredentialsInvalid(f"{error.message}, or it is not in this account and region") from None
            return (lambda: token_of(aws, cluster)), _digest(kind, region, cluster, credential), [endpoint]
        raise Unsupported(f"no tokens are made of {kind}")


class Tokens:
    """The tokens of one identity for one cluster."""

    def __init__(self, identities: CloudIdentities, digest: str, make: Callable[[], BearerToken], in_thread: InThread) -> None:
        self._identities = identities
        self._digest = digest
        self._make = make
        self._in_thread = in_thread

    async def __call__(self, seconds: float, *, refused: str = "") -> tuple[str, float]:
        """Give a token that stays good for so long, or the newest there is, with its end, and not the refused one.

        Raises CredentialsInvalid, and ServerError without an answer.
        """
        kept = self._identities.kept
        known = kept.get(self._digest)
        if known is None or known.text == refused or known.expires_at - self._identities.clock() < seconds:
            known = kept[self._digest] = await self._in_thread(self._make)
            while len(kept) > _KEPT_MAX:
                del kept[next(iter(kept))]
        return known.text, known.expires_at


def _may_not_ask(name: str, action: str, error: PermissionDenied) -> PermissionDenied:
    return PermissionDenied(f"a token goes only where the cloud says that cluster {name} is, which needs {action}: {error.message}")


def _address(url: str) -> tuple[str, int | None, str] | None:
    """Give host, port and path of an address, which may be written in several ways; None for what is no address of HTTPS."""
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
    """Give name and region of an EKS cluster by what its kubeconfig calls it, an ARN or a name, and by its server.

    Raises CredentialsInvalid where they say nothing of a region: a token is made for one cluster in one region.
    """
    if arn := _ARN.fullmatch(name):
        return arn[2], arn[1]
    if written := _EKSCTL.fullmatch(name):
        return written[1], written[2]
    host = _HOST.fullmatch(server)
    if host is None or not _NAME.fullmatch(name):
        raise CredentialsInvalid(
            "a token needs name and region of the EKS cluster: call it by its ARN in clusters of the kubeconfig, "
            "as `aws eks update-kubeconfig` does"
        )
    return name, host[1]
