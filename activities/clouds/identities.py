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


class GoogleTokens(Protocol):
    """A credential of Google Cloud."""

    def token(self) -> BearerToken:
        """Fetch an access token."""


class CloudIdentities:
    """The identities of a worker. `google` makes clients of a key, which tests replace; all of it may be used by several threads."""

    def __init__(self, google: Callable[[str], GoogleTokens] = KeyClients, clock: Callable[[], float] = time.time) -> None:
        self._google = google
        self.clock = clock
        self.kept: dict[str, BearerToken] = {}

    def tokens(self, kind: str, credential: str, name: str, server: str) -> "Tokens":
        """Give the tokens of a credential for the cluster that its kubeconfig calls so. Raises CredentialsInvalid where it is of no use."""
        if kind == GOOGLE:
            return Tokens(self, _digest(kind, credential), self._google(credential).token)
        if kind == AWS:
            cluster, region = eks_cluster(name, server)
            clients = AwsClients(read_credential(credential), region, seconds=self.clock)
            return Tokens(self, _digest(kind, region, cluster, credential), lambda: token_of(clients, cluster))
        raise Unsupported(f"no tokens are made of {kind}")


class Tokens:
    """The tokens of one identity for one cluster."""

    def __init__(self, identities: CloudIdentities, digest: str, make: Callable[[], BearerToken]) -> None:
        self._identities = identities
        self._digest = digest
        self._make = make

    async def __call__(self, seconds: float, *, refused: str = "") -> tuple[str, float]:
        """Give a token that stays good for so long, or the newest there is, with its end, and not the refused one.

        Raises CredentialsInvalid, and ServerError without an answer.
        """
        kept = self._identities.kept
        known = kept.get(self._digest)
        if known is None or known.text == refused or known.expires_at - self._identities.clock() < seconds:
            known = kept[self._digest] = await asyncio.to_thread(self._make)
            while len(kept) > _KEPT_MAX:
                del kept[next(iter(kept))]
        return known.text, known.expires_at


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
