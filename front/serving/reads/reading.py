"""Gets and lists objects from the projection."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from front.serving import errors
from front.serving.formats import negotiation
from front.serving.reads import list_options, tables
from front.serving.reads.selectors import ObjectSelector
from front.serving.requests import RequestedResource
from front.serving.sending import encoded, in_turns
from front.store.projection import ObjectKey, Projection, StoredObject, Tree

_LIMIT_MAX = 10_000
_TOKEN_MAX = 2048
_DIGITS_MAX = 18
_EMPTY = b"[]}"
Parameters = Mapping[str, str]


@dataclass(frozen=True)
class Form:
    """The form in which a client requests objects: whole, in a Table, or only metadata.

    `included` selects the object in each row of a Table. `version` is that of Tables
    and metadata.
    """

    table: bool = False
    metadata: bool = False
    included: str = ""
    version: str = "v1"

    @classmethod
    def of(cls, accept: str, parameters: Parameters, *, of_list: bool) -> "Form":
        """Parse the headers and parameters of a request.

        Raises `RejectedRequest` if the client accepts no form that this server has.
        """
        found = negotiation.form_of(accept)
        wrong = negotiation.PARTIAL if of_list else negotiation.PARTIAL_LIST
        if found is None or found[0] == wrong:
            raise errors.not_acceptable(negotiation.ONLY_JSON)
        kind, version = found
        is_table = kind == negotiation.TABLE
        included = parameters.get("includeObject", "")
        if is_table and included not in tables.INCLUDED:
            raise errors.bad_request(
                "Unable to convert to Table as requested: includeObject: "
                f"Invalid value: {included[:64]!r}: must be 'Metadata', 'Object', "
                "'None', or empty"
            )
        is_metadata = bool(kind) and not is_table
        return cls(is_table, is_metadata, included, version or "v1")

    @property
    def _api_version(self) -> str:
        return f"{tables.META_GROUP}/{self.version}"

    @property
    def is_whole(self) -> bool:
        return not self.table and not self.metadata

    def one(
        self, resource: RequestedResource, tree: Tree, *, headed: bool = True
    ) -> Tree:
        """Return one object in this form."""
        if self.table:
            shown = tree["metadata"].get("resourceVersion")
            version = {"resourceVersion": shown} if shown else {}
            return tables.table(
                resource.info,
                [tree],
                version,
                self.included,
                self._api_version,
                headed=headed,
            )
        return tables.partial(tree, self._api_version) if self.metadata else tree

    def around(self, resource: RequestedResource, metadata: Tree) -> Tree:
        """Return a list without items; the field of its items is the last one."""
        info = resource.info
        if self.table:
            return tables.table(info, (), metadata, self.included, self._api_version)
        if self.metadata:
            return {
                "kind": "PartialObjectMetadataList",
                "apiVersion": self._api_version,
                "metadata": metadata,
                "items": [],
            }
        return {
            "kind": f"{info.kind}List",
            "apiVersion": info.api_version,
            "metadata": {"continue": "", **metadata},
            "items": [],
        }

    def items(
        self, resource: RequestedResource, held: Iterable[StoredObject]
    ) -> Iterator[bytes]:
        """Yield the items of a list as JSON; each is encoded when it is consumed."""
        if self.is_whole:
            return (stored.encoded for stored in held)
        trees = (stored.tree for stored in held)
        if self.table:
            rows = tables.rows(resource.info, trees, self.included, self._api_version)
            return map(encoded, rows)
        return (encoded(tables.partial(tree, self._api_version)) for tree in trees)


@dataclass(frozen=True)
class ListSnapshot:
    """A collection, or a page of it, at the time of the request."""

    resource: RequestedResource
    held: Sequence[StoredObject]
    metadata: Tree

    async def parts(self, form: Form) -> Iterable[bytes]:
        """Return the JSON of the collection in parts.

        Other requests are served in between, and may write. Whole objects are encoded
        once for all responses. Rows and metadata are encoded for each response as the
        client reads them, because those of slow clients would fill the memory.
        """
        parts = self._parts(form)
        if form.is_whole:
            return [part async for part in in_turns(parts)]
        return parts

    def _parts(self, form: Form) -> Iterator[bytes]:
        head = encoded(form.around(self.resource, self.metadata))
        yield head.removesuffix(_EMPTY) + b"["
        for number, item in enumerate(form.items(self.resource, self.held)):
            if number:
                yield b","
            yield item
        yield _EMPTY[1:]


def check_complete(projection: Projection) -> None:
    """Raise `RejectedRequest` (503) until the projection has all objects."""
    if not projection.complete:
        raise errors.not_yet("the objects are not loaded yet; try again in a moment")


def get(projection: Projection, resource: RequestedResource) -> Tree:
    """Return an object. Raises `RejectedRequest` if it does not exist."""
    stored = projection.get(resource.key)
    if resource.key in projection.unread:
        raise errors.not_yet(
            "no worker has answered for this object yet; try again in a moment"
        )
    if stored is None:
        raise errors.not_found(*resource.identity)
    return stored.tree


def selection(resource: RequestedResource, parameters: Parameters) -> ObjectSelector:
    """Parse the selectors of a request. Raises `RejectedRequest`."""
    return ObjectSelector(
        resource.namespace,
        resource.name,
        parameters.get("labelSelector", ""),
        parameters.get("fieldSelector", ""),
        namespaced=resource.info.namespaced,
    )


async def listed(
    projection: Projection, resource: RequestedResource, parameters: Parameters
) -> ListSnapshot:
    """Return a collection, or the page that a client requests.

    Each page shows the objects at the time of its request. An object that exists all
    the time is on exactly one page. All pages have the version of the first page, so a
    watch from that version sees all changes in between. An object that was created
    after the first page is on no page. If it is deleted before the watch begins, the
    client never sees it. Raises `RejectedRequest`.
    """
    list_options.check(parameters, watch=False)
    wanted = selection(resource, parameters)
    limit = _limit(parameters)
    list_options.integer(parameters, "timeoutSeconds")
    token, least = parameters.get("continue", ""), list_options.version(parameters)
    if token and least:
        raise errors.bad_request(
            "specifying resource version is not allowed when using continue"
        )
    await list_options.until_known(projection, least)
    check_all_are_read(projection, resource, wanted)
    after, version = _continued(token, projection.high)
    if parameters.get(list_options.MATCH) == list_options.EXACT:
        # Only the present state is known.
        if projection.changed_after(resource.info.kind, least, wanted.has_key):
            raise errors.expired("list")
        version = least
    # Copy at once, because others may write before the loop ends.
    held = list(projection.of_kind(resource.info.kind).items())
    there = (item for item in held if item[1].first <= version)
    matching = [
        item
        async for item in in_turns(there)
        if wanted.has_key(item[0]) and wanted.has_labels(item[1])
    ]
    rows = sorted(item for item in matching if after is None or item[0] > after)
    shown = rows[: min(limit, _LIMIT_MAX)] if limit else rows
    metadata: Tree = {"resourceVersion": str(version)}
    if len(shown) < len(rows):
        metadata |= {
            "continue": _token(shown[-1][0], version),
            "remainingItemCount": len(rows) - len(shown),
        }
        if wanted.by_labels or parameters.get("fieldSelector"):
            del metadata["remainingItemCount"]
    return ListSnapshot(resource, [stored for _, stored in shown], metadata)


def check_all_are_read(
    projection: Projection, resource: RequestedResource, wanted: ObjectSelector
) -> None:
    """Raise `RejectedRequest` if some object of a collection was never read.

    The client would take the missing objects for deleted.
    """
    if any(
        key.kind == resource.info.kind and wanted.has_key(key)
        for key in projection.unread
    ):
        raise errors.not_yet(
            "no worker has answered for some of these objects yet; try again in a moment"
        )


def number(parameters: Parameters, name: str) -> int:
    """Parse a non-negative integer parameter; 0 if it is missing.

    Raises `RejectedRequest`.
    """
    text = parameters.get(name) or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise errors.bad_request(f"{name}: {text[:64]!r} is not a non-negative integer")
    return int(text)


def _limit(parameters: Parameters) -> int:
    """Return the size of a page; 0 for all objects, as for a negative limit."""
    return max(0, list_options.integer(parameters, "limit"))


def _token(key: ObjectKey, version: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([*key, version]).encode()).decode()


def _continued(token: str, high: int) -> tuple[ObjectKey | None, int]:
    if not token:
        return None, high
    invalid = errors.bad_request(
        "continue: the token is invalid; list again without a token"
    )
    try:
        text = base64.urlsafe_b64decode(token[:_TOKEN_MAX].encode())
        kind, namespace, name, version = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise invalid from None
    names_are_text = all(isinstance(part, str) for part in (kind, namespace, name))
    if not names_are_text or not isinstance(version, int):
        raise invalid
    return ObjectKey(kind, namespace, name), version
