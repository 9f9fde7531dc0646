"""The kubeconfig that helm reads: written for one use of a cluster, with values only (rules H10 and 3.5, ruling 78).

It has no exec entry: a credential plugin is run here, as for every other request, and its token is written.
"""

import base64
import json
from pathlib import Path
from typing import Any

from activities.clients.helm.folders import write_private
from activities.clients.kubernetes.credential import Credential
from activities.clients.kubernetes.kubeconfig import Access

TOKEN_SECONDS = 600
"""How long a token must be good when a helm run starts with it: twice the longest run."""
_NAME = "cluster"


class KubeconfigFile:
    """A kubeconfig in a folder; it exists after the first `refresh`."""

    def __init__(self, folder: Path, access: Access, cluster: str) -> None:
        self.path = folder / "kubeconfig"
        self._access = access
        self._credential = Credential(cluster, access)
        self._written: str | None = None

    async def refresh(self) -> None:
        """Write the file if the token is new. Raises CredentialsInvalid if none can be had that is good for long enough."""
        token = await self._credential.token_for(TOKEN_SECONDS)
        if token != self._written:
            write_private(self.path, json.dumps(_document(self._access, token)))
            self._written = token

    def secrets(self) -> list[str]:
        """Give what must not be in any text."""
        return [secret for secret in (self._credential.last(), self._access.key) if secret]


def _document(access: Access, token: str) -> dict[str, Any]:
    cluster = {"server": access.server}
    user = {"token": token} if token else {}
    if access.authority:
        cluster["certificate-authority-data"] = _encoded(access.authority)
    if access.server_name:
        cluster["tls-server-name"] = access.server_name
    if access.certificate:
        user |= {"client-certificate-data": _encoded(access.certificate), "client-key-data": _encoded(access.key)}
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
