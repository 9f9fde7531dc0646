"""The Kubernetes API of one cluster as activities use it: a Protocol over plain JSON.

Objects are the dictionaries that Kubernetes sends: no model of ours could follow every kind of every stack, and nothing here needs one. The
SDK is behind `ClusterApi` in `clients/`. Failures are raised as the errors of `api_types.errors`:

* CredentialsInvalid (401), PermissionDenied (403), InvalidInput (400, 422), StackMissing (the cluster does not serve the kind)
* Throttled (429), ServerError (409, 5xx), ClusterUnreachable (no response); a retry may help with these
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol

from api_types.messages.cluster_work import Connection, ObjectIdParts

Json = dict[str, Any]
Keep = Callable[[Json], Any]
Propagation = Literal["Foreground", "Background", "Orphan"]


class Kind(NamedTuple):
    """A kind of object in one version: `apiVersion` as in a manifest."""

    api_version: str
    kind: str

    @property
    def group(self) -> str:
        """The API group, empty for the core."""
        return self.api_version.rpartition("/")[0]

    def __str__(self) -> str:
        return f"{self.api_version}/{self.kind}"


class ObjectId(NamedTuple):
    """One object on a cluster; its text form `<apiVersion>/<Kind>/<namespace>/<name>` is that of an inventory."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "ObjectId":
        """Read the text form. Raises ValueError."""
        version, kind, namespace, name = ObjectIdParts.parse(text)
        return cls(Kind(version, kind), namespace, name)

    @property
    def identity(self) -> tuple[str, ...]:
        """What it is, in whichever version of its API."""
        return (self.kind.group, self.kind.kind, self.namespace, self.name)

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "ObjectId":
        """Give the identity of a whole object."""
        metadata = manifest["metadata"]
        return cls(Kind(manifest["apiVersion"], manifest["kind"]), metadata.get("namespace", ""), metadata["name"])


class Resource(NamedTuple):
    """How a served kind is addressed."""

    kind: Kind
    plural: str
    namespaced: bool
    verbs: frozenset[str]


class Listing(NamedTuple):
    """All objects of a list, or what is kept of each, and the resource version that a watch may start from.

    Items carry apiVersion and kind.
    """

    items: list[Any]
    resource_version: str


class Event(NamedTuple):
    """One change that a watch saw; a BOOKMARK only carries a newer resource version."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Json


class Selection(NamedTuple):
    """What to list or watch. Empty parts do not narrow; `metadata_only` keeps contents, such as secret values, on the server."""

    kind: Kind
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False


def whole(item: Json) -> Json:
    """Keep the object itself."""
    return item


class WatchExpired(Exception):
    """The cluster no longer has the changes since that resource version: list again."""


class ClusterApi(Protocol):
    """One cluster, under one credential."""

    def applying(self) -> AbstractAsyncContextManager[None]:
        """Wait until one more apply may run on the cluster, in the order of arrival, and count as one while held.

        Entering raises ClusterUnreachable when the cluster answers no request meanwhile.
        """
        ...

    async def version(self) -> str:
        """Give the server's version, such as `v1.35.4`."""
        ...

    async def resources(self, *, refresh: bool = False) -> Mapping[Kind, Resource]:
        """Give every served kind in every served version; `refresh` runs discovery again."""
        ...

    async def get(self, target: ObjectId) -> Json | None:
        """Read one object; None if it, its namespace or its kind does not exist."""
        ...

    async def list(self, selection: Selection, keep: Keep = whole) -> Listing:
        """List all pages. Raises StackMissing if the kind is not served, and what `keep` raises.

        What it gives of an object is kept, and at once: all objects together may take a hundred times as much.
        """
        ...

    def watch(self, selection: Selection, resource_version: str) -> AsyncIterator[Event]:
        """Follow changes until the server ends the watch. Raises WatchExpired, StackMissing and the errors above."""
        ...

    async def apply(self, manifest: Json, *, dry_run: bool = False) -> Json:
        """Apply one object server-side, as manager `modelplane`, taking over fields of others.

        Gives what the server stored; with `dry_run` what it would store, and stores nothing.
        """
        ...

    async def create(self, manifest: Json) -> Json | None:
        """Create an object; None if the name is taken. Also serves review kinds, which are answered and not stored."""
        ...

    async def replace(self, manifest: Json) -> Json | None:
        """Replace the object with its `metadata.resourceVersion`; None if that one has changed or is gone."""
        ...

    async def delete(
        self,
        target: ObjectId,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Foreground",
        grace_seconds: int | None = None,
    ) -> bool:
        """Request deletion, only of the object with `uid` (at `resource_version`) if given. False if there is no such object (any more)."""
        ...


class ClusterPool(Protocol):
    """The clients of all clusters."""

    async def at(self, connection: Connection) -> ClusterApi:
        """Resolve the reference to the kubeconfig again and give a client for it. Raises CredentialsInvalid."""
        ...
