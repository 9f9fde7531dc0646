"""Where secret values come from, so that they never pass through Temporal.

Workflows pass references (namespace, name, key); an activity resolves them here, uses the value and does not keep it. The store has two
implementations behind one Protocol: a directory of files, or Secrets of the control cluster. `selection.py` chooses between them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from api_types.errors import InvalidInput, PermissionDenied
from api_types.names import is_reserved_namespace

SecretKind = Literal["Secret", "ConfigMap"]
OPAQUE = "Opaque"

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_NAME_MAX = 253
# Kubernetes uses names with two dots in mounted volumes, and the directory store for its own files.
_RESERVED_KEY_PREFIX = ".."
METADATA_FILE = ".meta.json"


class SecretMissing(LookupError):
    """No such entry, or no such key in it. The text has all three parts and never a value."""

    def __init__(self, namespace: str, name: str, key: str = "", *, detail: str = "") -> None:
        self.namespace, self.name, self.key = namespace, name, key
        text = f"Secret {namespace}/{name} has no key {key!r}" if key and detail else f"Secret {namespace}/{name} does not exist"
        super().__init__(f"{text}{': ' if detail else ''}{detail}")


@dataclass(frozen=True)
class StoredSecret:
    """One Secret or ConfigMap with its values, in bytes; the values stay out of its text form."""

    namespace: str
    name: str
    data: Mapping[str, bytes] = field(repr=False)
    type: str = OPAQUE
    labels: Mapping[str, str] = field(default_factory=dict)
    kind: SecretKind = "Secret"


@dataclass(frozen=True)
class SecretInfo:
    """What may be shown of an entry. `version` changes with the content and does not reveal it."""

    namespace: str
    name: str
    kind: SecretKind
    type: str
    labels: Mapping[str, str]
    keys: tuple[str, ...]
    version: str


class SecretReader(Protocol):
    """What a worker may do with a secret store. A Secret and a ConfigMap of one namespace never share a name.

    Activities are given this part alone: the rights in deploy/kubernetes/rbac.yaml are those that it needs.
    """

    async def get(self, namespace: str, name: str, key: str) -> bytes:
        """Give one value. Raises SecretMissing."""
        ...

    async def read(self, namespace: str, name: str) -> StoredSecret:
        """Give a whole entry. Raises SecretMissing."""
        ...

    async def describe(self, namespace: str, name: str) -> SecretInfo | None:
        """Describe an entry without its values; None if there is none."""
        ...


class SecretStore(SecretReader, Protocol):
    """A place for secret values, by namespace, name and key, with what the command line does there."""

    async def put(self, secret: StoredSecret) -> None:
        """Create or replace an entry. Raises InvalidInput for a bad name or key, NameConflict if the name is taken by the other kind."""
        ...

    async def delete(self, kind: SecretKind, namespace: str, name: str) -> bool:
        """Remove an entry of that kind. False if there was none, also when the name is that of an entry of the other kind."""
        ...

    async def list(self, namespace: str = "") -> Sequence[SecretInfo]:
        """Describe the entries of one namespace, or of all, sorted by namespace and name."""
        ...


def check_tenants_own(namespace: str, name: str) -> None:
    """Refuse what a tenant's object may not name: credentials of the platform. Raises PermissionDenied."""
    if is_reserved_namespace(namespace):
        raise PermissionDenied(
            f"Secret {namespace}/{name}: the namespace belongs to the platform; name a Secret of the object's own namespace"
        )


def check_names(namespace: str, name: str, keys: tuple[str, ...] = ()) -> None:
    """Refuse names that are no Kubernetes names (a path could point outside the store). Raises InvalidInput with every problem."""
    problems = [
        f"{what} {value!r} must be a lower-case DNS name of at most {_NAME_MAX} characters"
        for what, value in (("namespace", namespace), ("name", name))
        if len(value) > _NAME_MAX or not _SUBDOMAIN.fullmatch(value)
    ]
    problems += [
        f"key {key!r} must consist of letters, digits, '-', '_' or '.', and be neither {METADATA_FILE!r}, '.' nor begin with '..'"
        for key in keys
        if len(key) > _NAME_MAX or not _KEY.fullmatch(key) or key in {".", METADATA_FILE} or key.startswith(_RESERVED_KEY_PREFIX)
    ]
    if problems:
        raise InvalidInput(f"Secret {namespace}/{name}: {'; '.join(problems)}")
