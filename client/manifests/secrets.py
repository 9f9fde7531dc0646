"""Secrets and ConfigMaps in the secret store. They are never sent to Temporal."""

import base64
import uuid
from collections.abc import Sequence

from activities.clouds.accounts import INSTALLATION_KEY, INSTALLATION_SECRET
from activities.secrets.selection import secret_store
from activities.secrets.store import SecretKind, SecretStore, StoredSecret
from api_types.errors import ModelplaneError
from api_types.labels import SYSTEM_NAMESPACE
from api_types.names import CLOUD_CREDENTIAL_KEY
from api_types.resources.secrets import ConfigMap, DataManifest, Secret
from api_types.settings import Settings
from api_types.validation.manifests import Manifest
from fleet_client.errors import CommandFailed, NotFound, Refused

STORED_ELSEWHERE = (
    "Secrets and ConfigMaps go to the secret store of the fleet, which the front does "
    "not reach"
)
"""The reason why Secrets and ConfigMaps are not written through the front."""

# Prefixes of the Secrets with cloud credentials.
_CREDENTIALS = ("gke-", "eks-")


async def store_secrets(manifests: Sequence[Manifest], settings: Settings) -> None:
    """Write Secrets and ConfigMaps to the secret store, and print the outcome of each."""
    if not manifests:
        return
    store = secret_store(settings)
    for manifest in manifests:
        label = f"{manifest.kind.lower()}/{manifest.metadata.name}"
        try:
            if await _needs_installation(store, manifest, settings):
                installation = {INSTALLATION_KEY: _new_installation()}
                await store.put(
                    StoredSecret(SYSTEM_NAMESPACE, INSTALLATION_SECRET, installation)
                )
                print(f"secret/{INSTALLATION_SECRET} created", flush=True)
            outcome = await _put(store, manifest)
        except (ModelplaneError, OSError) as error:
            raise _failed(f"{label} could not be stored", error, settings) from error
        print(f"{label} {outcome}", flush=True)


async def delete_secrets(
    settings: Settings, manifests: Sequence[DataManifest], *, ignore_not_found: bool
) -> list[CommandFailed]:
    """Delete Secrets and ConfigMaps from the secret store.

    Return the failures. Call it after the deletion of the objects that may use them was
    requested.
    """
    failures: list[CommandFailed] = []
    store = secret_store(settings) if manifests else None
    for manifest in manifests:
        namespace, name = manifest.metadata.namespace, manifest.metadata.name
        label = f"{manifest.kind.lower()}/{name}"
        try:
            deleted = store is not None and await store.delete(
                _kind(manifest), namespace, name
            )
        except (ModelplaneError, OSError) as error:
            failures.append(_failed(f"{label} could not be deleted", error, settings))
            continue
        if deleted:
            print(f"{label} deleted", flush=True)
        elif not ignore_not_found:
            failures.append(
                NotFound(
                    f"{manifest.kind} {namespace}/{name} does not exist in the secret store",
                    next_step=(
                        "check its name and namespace in the file, or delete with "
                        "--ignore-not-found"
                    ),
                )
            )
    return failures


async def _needs_installation(
    store: SecretStore, manifest: Manifest, settings: Settings
) -> bool:
    """Whether the store needs an id of this installation before it stores a credential.

    Objects at a cloud are marked with that id. Workers only read the store, so the id
    is created with the first credential. Each cluster keeps the id that it was created
    with, even if the Secret changes.
    """
    if not isinstance(manifest, Secret) or settings.provision.installation_id:
        return False
    is_credential = (
        manifest.metadata.namespace == SYSTEM_NAMESPACE
        and manifest.metadata.name.startswith(_CREDENTIALS)
        and CLOUD_CREDENTIAL_KEY
        in {*(manifest.data or ()), *(manifest.string_data or ())}
    )
    if not is_credential:
        return False
    return await store.describe(SYSTEM_NAMESPACE, INSTALLATION_SECRET) is None


def _new_installation() -> bytes:
    return f"mp-{uuid.uuid4().hex[:12]}".encode()


def _failed(
    what: str, error: ModelplaneError | OSError, settings: Settings
) -> CommandFailed:
    if isinstance(error, ModelplaneError):
        return CommandFailed(
            f"{what}: {error.message}", next_step="check the settings under `secrets`"
        )
    return CommandFailed(
        f"{what}: {error.strerror}",
        next_step=f"make {settings.secrets.directory} writable for you",
    )


def _kind(manifest: DataManifest) -> SecretKind:
    return "ConfigMap" if isinstance(manifest, ConfigMap) else "Secret"


async def _put(store: SecretStore, manifest: Manifest) -> str:
    metadata = manifest.metadata
    before = await store.describe(metadata.namespace, metadata.name)
    await store.put(_stored(manifest))
    after = await store.describe(metadata.namespace, metadata.name)
    if before is None:
        return "created"
    return "unchanged" if before == after else "configured"


def _stored(manifest: Manifest) -> StoredSecret:
    """Convert a Secret or ConfigMap to an entry of the store.

    Raise `Refused` for a value that is not base64.
    """
    name, namespace, labels = (
        manifest.metadata.name,
        manifest.metadata.namespace,
        manifest.metadata.labels,
    )
    if isinstance(manifest, Secret):
        data = _decoded(manifest, manifest.data) | {
            key: text.encode() for key, text in (manifest.string_data or {}).items()
        }
        return StoredSecret(namespace, name, data, type=manifest.type, labels=labels)
    if isinstance(manifest, ConfigMap):
        data = _decoded(manifest, manifest.binary_data) | {
            key: text.encode() for key, text in (manifest.data or {}).items()
        }
        return StoredSecret(namespace, name, data, labels=labels, kind="ConfigMap")
    raise TypeError(f"{manifest.kind} does not belong in the secret store")


def _decoded(manifest: Manifest, values: dict[str, str] | None) -> dict[str, bytes]:
    decoded: dict[str, bytes] = {}
    for key, text in (values or {}).items():
        try:
            decoded[key] = base64.b64decode("".join(text.split()), validate=True)
        except ValueError as error:
            title = f"{manifest.kind} {manifest.metadata.namespace}/{manifest.metadata.name}"
            # The value itself must not be shown: it may be a secret written in the wrong field.
            raise Refused(
                f"{title}: data.{key}: not base64; nothing was sent",
                next_step="encode it, or use stringData",
            ) from error
    return decoded
