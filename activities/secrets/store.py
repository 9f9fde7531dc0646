"""The secret store, from which activities read secret values.

Secret values never enter Temporal. Workflows pass references (namespace, name, key). An
activity resolves a reference here, uses the value and does not store it. Two
implementations share one Protocol: a directory of files, and Secrets of the control
cluster. `selection.py` chooses between them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from api_types.errors import InvalidInput, PermissionDenied
from api_types.names import is_reserved_namespace

SecretKind = Literal["Secret", "ConfigMap"]
OPAQUE = "Opaque"

_SUBDOMAIN = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_NAME_MAX = 253
# Kubernetes uses names that begin with two dots in mounted volumes, and the directory
# store uses them for its own files.
_RESERVED_KEY_PREFIX = ".."
METADATA_FILE = ".meta.json"


class SecretMissing(LookupError):
    """The entry, or a key of it, does not exist.

    The message names it and never contains a value.
    """

    def __init__(
        self, namespace: str, name: str, key: str = "", *, detail: str = ""
    ) -> None:
        self.namespace, self.name, self.key = namespace, name, key
        text = (
            f"Secret {namespace}/{name} has no key {key!r}"
            if key and detail
            else f"Secret {namespace}/{name} does not exist"
        )
        super().__init__(f"{text}{': ' if detail else ''}{detail}")


@dataclass(frozen=True)
class StoredSecret:
    """One Secret or ConfigMap with its values in bytes.

    The values are not in its repr.
    """

    namespace: str
    name: str
    data: Mapping[str, bytes] = field(repr=False)
    type: str = OPAQUE
    labels: Mapping[str, str] = field(default_factory=dict)
    kind: SecretKind = "Secret"


@dataclass(frozen=True)
class SecretInfo:
    """The part of an entry that may be shown.

    `version` changes with the content and does not reveal it.
    """

    namespace: str
    name: str
    kind: SecretKind
    type: str
    labels: Mapping[str, str]
    keys: tuple[str, ...]
    version: str


class SecretReader(Protocol):
    """The operations of a worker on a secret store.

    A Secret and a ConfigMap of one namespace never have the same name. Activities get
    only this part of the store, and deploy/kubernetes/rbac.yaml grants only the
    permissions that it needs.
    """

    async def get(self, namespace: str, name: str, key: str) -> bytes:
        """Return one value. Raises SecretMissing."""
        ...

    async def read(self, namespace: str, name: str) -> StoredSecret:
        """Return a whole entry. Raises SecretMissing."""
        ...

    async def describe(self, namespace: str, name: str) -> SecretInfo | None:
        """Describe an entry without its values. Returns None if it does not exist."""
        ...


class SecretStore(SecretReader, Protocol):
    """A secret store with the operations of the command line."""

    async def put(self, secret: StoredSecret) -> None:
        """Create or replace an entry.

        Raises InvalidInput for a bad name or key, and NameConflict if the other kind
        has that name.
        """
        ...

    async def delete(self, kind: SecretKind, namespace: str, name: str) -> bool:
        """Delete an entry of that kind.

        Returns False if there was none, even if the other kind has that name.
        """
        ...

    async def list(self, namespace: str = "") -> Sequence[SecretInfo]:
        """Describe the entries of one namespace, or of all, by namespace and name."""
        ...


def check_tenants_own(namespace: str, name: str) -> None:
    """Raise PermissionDenied if a tenant's object names a Secret of the platform."""
    if is_reserved_namespace(namespace):
        raise PermissionDenied(
            f"Secret {namespace}/{name}: the namespace belongs to the platform; name a "
            "Secret of the object's own namespace"
        )


def check_names(namespace: str, name: str, keys: tuple[str, ...] = ()) -> None:
    """Raise InvalidInput, with every problem, for names that Kubernetes does not allow.

    A name with path separators could point outside the store.
    """
    problems = [
        f"{what} {value!r} must be a lower-case DNS name of at most {_NAME_MAX} characters"
        for what, value in (("namespace", namespace), ("name", name))
        if len(value) > _NAME_MAX or not _SUBDOMAIN.fullmatch(value)
    ]
    problems += [
        f"key {key!r} must consist of letters, digits, '-', '_' or '.'; it must not "
        f"be '.' or {METADATA_FILE!r}, and must not begin with '..'"
        for key in keys
        if not _is_valid_key(key)
    ]
    if problems:
        raise InvalidInput(f"Secret {namespace}/{name}: {'; '.join(problems)}")


def _is_valid_key(key: str) -> bool:
    return (
        len(key) <= _NAME_MAX
        and _KEY.fullmatch(key) is not None
        and key not in {".", METADATA_FILE}
        and not key.startswith(_RESERVED_KEY_PREFIX)
    )
