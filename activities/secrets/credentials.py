"""The credential with which a cache's source is read: a token, or a docker config.

Most callers only need to know whether the credential is usable, and its keyed digest.
The value is read only where it is used.
"""

from dataclasses import dataclass, field

from activities.secrets.store import (
    SecretKind,
    SecretMissing,
    SecretReader,
    check_tenants_own,
)
from api_types.errors import PermissionDenied

DOCKER_CONFIG_KEY = ".dockerconfigjson"


@dataclass(frozen=True)
class StoredCredential:
    """A credential in the store.

    While it is unusable, `version` is empty and `missing` is the reason. Both are empty
    if no credential is named.
    """

    version: str = ""
    missing: str = ""
    value: str = field(default="", repr=False)


async def read_credential(
    store: SecretReader,
    namespace: str,
    name: str,
    key: str,
    kind: SecretKind = "Secret",
) -> StoredCredential:
    """Read a credential by reference.

    An empty name means that no credential is needed, an empty key a docker config.

    `kind` is used in messages only. Raises PermissionDenied for a Secret of the
    platform.
    """
    if not name:
        return StoredCredential()
    check_tenants_own(namespace, name)
    key = key or DOCKER_CONFIG_KEY
    advice = f"put it there with `modelplane apply -f` of a v1 {kind}"
    try:
        stored = await store.read(namespace, name)
        info = await store.describe(namespace, name)
    except SecretMissing:
        return StoredCredential(
            missing=f"{kind} {namespace}/{name} with key {key!r} does not exist: {advice}"
        )
    except PermissionDenied as error:
        return StoredCredential(
            missing=f"{kind} {namespace}/{name} with key {key!r} cannot be read: "
            f"{error.message}"
        )
    value = stored.data.get(key, b"").decode(errors="replace").strip()
    if key not in stored.data or not value:
        state = "is empty" if key in stored.data else "does not exist"
        return StoredCredential(
            missing=f"key {key!r} of {kind} {namespace}/{name} {state}: {advice}"
        )
    return StoredCredential(version=info.version if info else "", value=value)
