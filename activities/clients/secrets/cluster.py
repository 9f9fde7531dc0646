"""Secrets and ConfigMaps of the control cluster as the secret store.

This store is meant for a control plane that runs in Kubernetes: values stay in its
etcd, and its RBAC protects them. The credential for the cluster cannot be in the store
itself. It is the pod's service account or, outside a cluster, the operator's kubeconfig
named by KUBECONFIG, with inline credentials. Both come from the operator and not from a
tenant, so a loopback server is allowed.
"""

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from activities.clients.kubernetes.client import KubernetesCluster
from activities.clients.kubernetes.kubeconfig import ApiServerAccess, parse_kubeconfig
from activities.clients.kubernetes.session import Session
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.secrets.store import (
    OPAQUE,
    SecretInfo,
    SecretKind,
    SecretMissing,
    SecretStore,
    StoredSecret,
    check_names,
)
from api_types import labels
from api_types.errors import CredentialsInvalid, NameConflict
from api_types.sections.clusters import KubeconfigSettings
from api_types.settings import Settings

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_KINDS: tuple[SecretKind, ...] = ("Secret", "ConfigMap")

Connector = Callable[[], Awaitable[ClusterApi]]


class SecretCluster(SecretStore):
    """The secret store on a cluster.

    `connect` returns the control cluster and is called at every use.
    """

    def __init__(self, connect: Connector) -> None:
        self._connect = connect

    async def get(self, namespace: str, name: str, key: str) -> bytes:
        """Return one value. Raises SecretMissing."""
        check_names(namespace, name, (key,))
        found = await self.read(namespace, name)
        if key not in found.data:
            keys = ", ".join(sorted(found.data)) or "none"
            raise SecretMissing(namespace, name, key, detail=f"its keys are {keys}")
        return found.data[key]

    async def read(self, namespace: str, name: str) -> StoredSecret:
        """Return a whole entry. Raises SecretMissing."""
        found = await self._find(namespace, name)
        if found is None:
            raise SecretMissing(namespace, name)
        return _stored(found)

    async def put(self, secret: StoredSecret) -> None:
        """Create or replace an entry, and its namespace if needed."""
        check_names(secret.namespace, secret.name, tuple(secret.data))
        cluster = await self._connect()
        other: SecretKind = "ConfigMap" if secret.kind == "Secret" else "Secret"
        if await cluster.get(_target(other, secret.namespace, secret.name)):
            raise NameConflict(
                f"{secret.kind} {secret.namespace}/{secret.name}: the name is taken by a "
                f"{other} on the control cluster; "
                "delete that one or choose another name"
            )
        namespace = ObjectId(GroupVersionKind("v1", "Namespace"), "", secret.namespace)
        if await cluster.get(namespace) is None:
            manifest = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": secret.namespace},
            }
            await cluster.create(manifest)
        await cluster.apply(_manifest(secret))

    async def delete(self, kind: SecretKind, namespace: str, name: str) -> bool:
        """Delete an entry of this kind. Returns False if there was none."""
        check_names(namespace, name)
        cluster = await self._connect()
        return await cluster.delete(
            _target(kind, namespace, name), propagation="Background"
        )

    async def list(self, namespace: str = "") -> Sequence[SecretInfo]:
        """Describe the entries of one namespace, or of all.

        Only entries that were written through the store are listed.
        """
        cluster = await self._connect()
        selector = f"{labels.MANAGED_BY}={labels.MANAGED_BY_VALUE}"
        found: list[SecretInfo] = []
        for kind in _KINDS:
            selection = Selection(GroupVersionKind("v1", kind), namespace, selector)
            listing = await cluster.list(selection)
            found += map(_info, listing.items)
        return sorted(found, key=lambda info: (info.namespace, info.name))

    async def describe(self, namespace: str, name: str) -> SecretInfo | None:
        """Describe an entry without its values. Returns None if there is none."""
        found = await self._find(namespace, name)
        return _info(found) if found else None

    async def _find(self, namespace: str, name: str) -> Json | None:
        check_names(namespace, name)
        cluster = await self._connect()
        for kind in _KINDS:
            if found := await cluster.get(_target(kind, namespace, name)):
                return found
        return None


def control_cluster_store(settings: Settings) -> SecretStore:
    """Return the store on the cluster to which this process belongs."""
    return SecretCluster(_ControlCluster(settings).connect)


class _ControlCluster:
    """The client of the control cluster.

    Kubernetes rotates the token of a service account every hour, so it is read again at
    every use.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: (
            tuple[ApiServerAccess, asyncio.AbstractEventLoop, KubernetesCluster] | None
        ) = None

    async def connect(self) -> ClusterApi:
        access = await asyncio.to_thread(self._access)
        loop = asyncio.get_running_loop()
        if self._client and self._client[:2] == (access, loop):
            return self._client[2]
        if self._client and self._client[1] is loop:
            await self._client[2].close()
        client = KubernetesCluster(Session("control", access))
        self._client = (access, loop, client)
        return client

    def _access(self) -> ApiServerAccess:
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if host and (_SERVICE_ACCOUNT / "token").exists():
            shown_host = f"[{host}]" if ":" in host else host
            return ApiServerAccess(
                server=f"https://{shown_host}:{port}",
                authority=(_SERVICE_ACCOUNT / "ca.crt").read_text(),
                token=(_SERVICE_ACCOUNT / "token").read_text().strip(),
                allow_loopback=True,
            )
        file = os.environ.get("KUBECONFIG")
        if not file:
            raise CredentialsInvalid(
                "secrets.store is controlCluster, but this process runs in no pod with a "
                "service account and KUBECONFIG is not set; "
                "set KUBECONFIG, or secrets.store to directory"
            )
        trusted = KubeconfigSettings(
            allow_loopback=True, allow_exec=self._settings.kubeconfig.allow_exec
        )
        try:
            text = Path(file).expanduser().read_text(encoding="utf-8")
        except OSError as error:
            raise CredentialsInvalid(
                f"KUBECONFIG: cannot read {file}: {error.strerror}"
            ) from None
        except UnicodeDecodeError:
            raise CredentialsInvalid(
                f"KUBECONFIG: {file} is not text in UTF-8; "
                "a kubeconfig in YAML or JSON is expected"
            ) from None
        return parse_kubeconfig(text, trusted, f"KUBECONFIG {file}")


def _target(kind: SecretKind, namespace: str, name: str) -> ObjectId:
    return ObjectId(GroupVersionKind("v1", kind), namespace, name)


def _manifest(secret: StoredSecret) -> Json:
    encoded = {
        key: base64.b64encode(value).decode() for key, value in secret.data.items()
    }
    metadata = {
        "namespace": secret.namespace,
        "name": secret.name,
        "labels": {**secret.labels, labels.MANAGED_BY: labels.MANAGED_BY_VALUE},
    }
    if secret.kind == "Secret":
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": secret.type,
            "data": encoded,
        }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "binaryData": encoded,
    }


def _stored(found: Json) -> StoredSecret:
    metadata = found["metadata"]
    data: dict[str, bytes] = {}
    for field in ("data", "binaryData"):
        if _is_encoded(found, field):
            for key, value in _map(found, field):
                data[key] = base64.b64decode(value)
    if found["kind"] == "ConfigMap":
        data |= {key: value.encode() for key, value in _map(found, "data")}
    return StoredSecret(
        namespace=metadata["namespace"],
        name=metadata["name"],
        data=data,
        type=found.get("type", OPAQUE),
        labels=metadata.get("labels") or {},
        kind="ConfigMap" if found["kind"] == "ConfigMap" else "Secret",
    )


def _is_encoded(found: Json, field: str) -> bool:
    return found["kind"] == "Secret" or field == "binaryData"


def _map(found: Json, field: str) -> list[tuple[str, str]]:
    return list((found.get(field) or {}).items())


def _info(found: Json) -> SecretInfo:
    stored = _stored(found)
    # The resource version changes with the content and does not reveal it.
    version = str(found["metadata"].get("resourceVersion", ""))
    return SecretInfo(
        stored.namespace,
        stored.name,
        stored.kind,
        stored.type,
        stored.labels,
        tuple(sorted(stored.data)),
        version,
    )
