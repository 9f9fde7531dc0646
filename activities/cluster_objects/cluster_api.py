"""The Kubernetes API of one cluster as activities use it: a Protocol over plain JSON.

Objects are the dictionaries that Kubernetes sends. Typed models could not cover every
kind of every serving stack, and no caller needs them. The SDK behind `ClusterApi` is in
`clients/`. Methods raise the errors of `api_types.errors`:

- CredentialsInvalid (401), PermissionDenied (403), InvalidInput (400, 422),
  StackMissing (the cluster does not serve the kind)
- Throttled (429), ServerError (409, 5xx), ClusterUnreachable (no response); a retry
  may help with these
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol

from api_types.messages.cluster_work import Connection, ObjectIdParts

Json = dict[str, Any]
Keep = Callable[[Json], Any]
Propagation = Literal["Foreground", "Background", "Orphan"]


class GroupVersionKind(NamedTuple):
    """A kind of object in one version: `apiVersion` as in a manifest."""

    api_version: str
    kind: str

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    def __str__(self) -> str:
        return f"{self.api_version}/{self.kind}"


class ObjectId(NamedTuple):
    """One object on a cluster.

    Its text form is `<apiVersion>/<Kind>/<namespace>/<name>`, as in an inventory.
    """

    kind: GroupVersionKind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "ObjectId":
        """Parse the text form. Raises ValueError."""
        version, kind, namespace, name = ObjectIdParts.parse(text)
        return cls(GroupVersionKind(version, kind), namespace, name)

    @property
    def identity(self) -> tuple[str, ...]:
        """The object without the version of its API."""
        return (self.kind.group, self.kind.kind, self.namespace, self.name)

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "ObjectId":
        """Return the id of an object."""
        metadata = manifest["metadata"]
        return cls(
            GroupVersionKind(manifest["apiVersion"], manifest["kind"]),
            metadata.get("namespace", ""),
            metadata["name"],
        )


class ApiResource(NamedTuple):
    kind: GroupVersionKind
    plural: str
    namespaced: bool
    verbs: frozenset[str]


class ObjectList(NamedTuple):
    """The items of a list, and the resource version from which a watch may start.

    Each item is the result of `keep`, by default the whole object with apiVersion and
    kind.
    """

    items: list[Any]
    resource_version: str


class Event(NamedTuple):
    """One event of a watch. A BOOKMARK only carries a newer resource version."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Json


class Selection(NamedTuple):
    """Which objects to list or watch.

    An empty field selects all.

    With `metadata_only` the server sends no contents, such as the values of Secrets.
    """

    kind: GroupVersionKind
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False


def whole(item: Json) -> Json:
    """Keep the whole object. This is the default of `ClusterApi.list`."""
    return item


class WatchExpired(Exception):
    """The cluster no longer has the changes since that resource version. List again."""


class ClusterApi(Protocol):
    def applying(self) -> AbstractAsyncContextManager[None]:
        """Hold one of the cluster's slots for concurrent applies.

        Callers get slots in the order of arrival. Entering raises ClusterUnreachable if
        the cluster stops responding while the caller waits.
        """
        ...

    async def version(self) -> str:
        """Return the server's version, such as `v1.35.4`."""
        ...

    async def resources(
        self, *, refresh: bool = False
    ) -> Mapping[GroupVersionKind, ApiResource]:
        """Return every served kind in every served version.

        `refresh` runs discovery again.
        """
        ...

    async def get(self, target: ObjectId) -> Json | None:
        """Return one object.

        Returns None if it, its namespace or its kind does not exist.
        """
        ...

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        """List all pages.

        `keep` runs on each object as its page arrives, and only its result stays in
        memory. All objects together may take a hundred times as much. Raises
        StackMissing if the kind is not served, and any error of `keep`.
        """
        ...

    def watch(
        self, selection: Selection, resource_version: str
    ) -> AsyncIterator[Event]:
        """Yield changes until the server ends the watch.

        Raises WatchExpired, StackMissing and the errors that the module lists.
        """
        ...

    async def apply(self, manifest: Json, *, dry_run: bool = False) -> Json:
        """Apply one object server-side as manager `modelplane`.

        The apply takes over fields of other managers. It returns the stored object.
        With `dry_run` it returns the object that would be stored, and stores nothing.
        """
        ...

    async def create(self, manifest: Json) -> Json | None:
        """Create an object.

        Returns None if the name is taken.

        Review kinds, which the server evaluates and does not store, are created in the
        same way.
        """
        ...

    async def replace(self, manifest: Json) -> Json | None:
        """Replace the object at its `metadata.resourceVersion`.

        Returns None if the version has changed or the object is gone.
        """
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
        """Request deletion.

        Returns False if no such object exists.

        `uid` and `resource_version` are preconditions: another object of that name, or
        a newer version, is not deleted.
        """
        ...

    async def proxied_status(
        self, service: ObjectId, port: int, path: str
    ) -> int | None:
        """Return the status code with which a Service answers a GET request.

        The API server passes the request on. Returns None if it does not, because the
        user may not do this, or no pod of the Service responds.
        """
        ...


class ClusterPool(Protocol):
    async def at(self, connection: Connection) -> ClusterApi:
        """Read the kubeconfig again and return a client for it.

        Raises CredentialsInvalid.
        """
        ...
