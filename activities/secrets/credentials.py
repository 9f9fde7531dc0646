"""The credential with which a cache's source is read: a token, or a docker config.

Callers get whether it can be used and a keyed digest; the value only where it is used.
"""

from dataclasses import dataclass, field

from activities.secrets.store import SecretKind, SecretMissing, SecretReader, check_tenants_own
from api_types.errors import PermissionDenied

DOCKER_CONFIG_KEY = ".dockerconfigjson"


@dataclass(frozen=True)
class Credential:
    """A credential in the store. While it cannot be used `version` is empty and `missing` says why; both are empty if none is named."""

    version: str = ""
    missing: str = ""
    value: str = field(default="", repr=False)


async def read_credential(store: SecretReader, namespace: str, name: str, key: str, kind: SecretKind = "Secret") -> Credential:
    """Read a credential by reference; an empty name means that none is needed, an empty key a docker config. `kind` is for the text.

    Raises PermissionDenied for one of the platform.
    """
    if not name:
        return Credential()
    check_tenants_own(namespace, name)
    key = key or DOCKER_CONFIG_KEY
    advice = f"put it there with `modelplane apply -f` of a v1 {kind}"
    try:
        stored = await store.read(namespace, name)
        info = await store.describe(namespace, name)
    except SecretMissing:
        return Credential(missing=f"{kind} {namespace}/{name} with key {key!r} does not exist: {advice}")
    except PermissionDenied as error:
        return Credential(missing=f"{kind} {namespace}/{name} with key {key!r} cannot be read: {error.message}")
    value = stored.data.get(key, b"").decode(errors="replace").strip()
    if key not in stored.data or not value:
        state = "is empty" if key in stored.data else "does not exist"
        return Credential(missing=f"key {key!r} of {kind} {namespace}/{name} {state}: {advice}")
    return Credential(version=info.version if info else "", value=value)
