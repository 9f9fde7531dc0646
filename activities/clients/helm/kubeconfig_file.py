"""The kubeconfig that helm reads, written for one use of a cluster.

It contains values only and no exec entry. A credential plugin runs in the worker, as
for every other request, and its token is written to the file.
"""

import base64
import json
from pathlib import Path
from typing import Any

from activities.clients.helm.folders import write_private
from activities.clients.kubernetes.credential import BearerCredential
from activities.clients.kubernetes.kubeconfig import ApiServerAccess

TOKEN_SECONDS = 600
"""The minimum lifetime of a token at the start of a helm run: twice the longest run."""
_NAME = "cluster"


class KubeconfigFile:
    """A kubeconfig in a folder. It exists after the first `refresh`."""

    def __init__(self, folder: Path, access: ApiServerAccess, cluster: str) -> None:
        self.path = folder / "kubeconfig"
        self._access = access
        self._credential = BearerCredential(cluster, access)
        self._written: str | None = None

    async def refresh(self) -> None:
        """Write the file if the token is new.

        Raises CredentialsInvalid if no token with a sufficient lifetime is available.
        """
        token = await self._credential.token_for(TOKEN_SECONDS)
        if token != self._written:
            write_private(self.path, json.dumps(_document(self._access, token)))
            self._written = token

    def secrets(self) -> list[str]:
        """Return the secret values, which no text may contain."""
        return [
            secret for secret in (self._credential.last(), self._access.key) if secret
        ]


def _document(access: ApiServerAccess, token: str) -> dict[str, Any]:
    cluster = {"server": access.server}
    user = {"token": token} if token else {}
    if access.authority:
        cluster["certificate-authority-data"] = _encoded(access.authority)
    if access.server_name:
        cluster["tls-server-name"] = access.server_name
    if access.certificate:
        user |= {
            "client-certificate-data": _encoded(access.certificate),
            "client-key-data": _encoded(access.key),
        }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _NAME, "user": user}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }


def _encoded(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()
