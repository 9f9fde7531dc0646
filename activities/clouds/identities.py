"""Tokens for clusters that exist at a cloud already, from the credential that an `identitySecretRef` names.

The credentials are those by which clusters are created: the JSON key of a service account, or the text of a shared-credentials file.
Tokens are short-lived and stay in the process. They are kept by the digest of the credential, because each Helm run reads it anew.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import Callable
from typing import Protocol

from activities.clients.kubernetes.kubeconfig import Access, TokenSource
from activities.clouds.eks.access import token_of
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.credential import read_credential
from activities.clouds.gke.clients import KeyClients
from activities.clouds.provider import BearerToken
from api_types.errors import CredentialsInvalid, Unsupported

GOOGLE, AWS = "GoogleApplicationCredentials", "AWSWebIdentityCredentials"

_ARN = re.compile(r"arn:aws[a-z-]*:eks:([a-z0-9-]+):[0-9]+:cluster/([A-Za-z0-9_-]+)")
_EKSCTL = re.compile(r"([A-Za-z0-9_-]+)\.([a-z0-9-]+)\.eksctl\.io")
_HOST = re.compile(r"https://[A-Za-z0-9-]+\.[A-Za-z0-9]+\.([a-z0-9-]+)\.eks\.amazonaws\.com(\.cn)?(:[0-9]+)?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_KEPT_MAX = 1000

Make = Callable[[], BearerToken]


class GoogleTokens(Protocol):
    """A credential of Google Cloud."""

    def token(self) -> BearerToken:
        """Fetch an access token."""


class CloudIdentities:
    """The identities of a worker. `google` makes clients of a key, which tests replace; all of it may be used by several threads."""

    def __init__(self, google: Callable[[str], GoogleTokens] = KeyClients, clock: Callable[[], float] = time.time) -> None:
        self._google = google
        self._clock = clock
        self._kept: dict[str, BearerToken] = {}

    def tokens(self, kind: str, credential: str, access: Access) -> TokenSource:
        """Give the tokens of a credential for a cluster. Raises CredentialsInvalid for one that cannot be used there."""
        if kind == GOOGLE:
            return self._source(self._google(credential).token, f"{kind}\0{credential}")
        if kind == AWS:
            name, region = eks_cluster(access.name, access.server)
            clients = AwsClients(read_credential(credential), region, seconds=self._clock)
            return self._source(lambda: token_of(clients, name), f"{kind}\0{region}\0{name}\0{credential}")
        raise Unsupported(f"no tokens are made of {kind}")

    def _source(self, make: Make, identity: str) -> TokenSource:
        digest = hashlib.sha256(identity.encode()).hexdigest()

        async def token(seconds: float, *, refused: str = "") -> tuple[str, float]:
            known = self._kept.get(digest)
            if known is None or known.text == refused or known.expires_at - self._clock() < seconds:
                known = self._kept[digest] = await asyncio.to_thread(make)
                while len(self._kept) > _KEPT_MAX:
                    del self._kept[next(iter(self._kept))]
            return known.text, known.expires_at

        return token


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
