"""Get and list, from the projection."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from front.serving import errors, tables
from front.serving.formats.negotiation import wants_metadata, wants_table
from front.serving.requests import Resource
from front.serving.selectors import Selection
from front.serving.sending import in_turns
from front.store.projection import Key, Projection, Stored, Tree

_LIMIT_MAX = 10_000
_TOKEN_MAX = 2048
_DIGITS_MAX = 18
_EMPTY = b"[]}"
Parameters = Mapping[str, str]


@dataclass(frozen=True)
class Form:
    """How a client wants objects: as they are, in a Table, or their metadata alone. `included`: what a Table's rows have beside cells."""

    table: bool = False
    metadata: bool = False
    included: str = ""

    @classmethod
    def of(cls, accept: str, parameters: Parameters) -> "Form":
        """Read it from the headers and parameters of a request."""
        return cls(wants_table(accept), wants_metadata(accept), parameters.get("includeObject", ""))

    @property
    def is_whole(self) -> bool:
        """Whether objects are wanted as they are."""
        return not self.table and not self.metadata

    def one(self, resource: Resource, tree: Tree, *, headed: bool = True) -> Tree:
        """Write one object."""
        if self.table:
            version = {"resourceVersion": tree["metadata"].get("resourceVersion", "")}
            return tables.table(resource.info, [tree], version, self.included, headed=headed)
        return tables.partial(tree) if self.metadata else tree

    def around(self, resource: Resource, metadata: Tree) -> Tree:
        """Write a list without anything in it; the field that has its items is the last one."""
        info = resource.info
        if self.table:
            return tables.table(info, (), metadata, self.included)
        if self.metadata:
            return {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": []}
        return {"kind": f"{info.kind}List", "apiVersion": info.api_version, "metadata": metadata, "items": []}

    def items(self, resource: Resource, held: Iterable[Stored]) -> Iterator[bytes]:
        """Write the items of a list as JSON, each when it is asked for."""
        if self.is_whole:
            return (stored.encoded for stored in held)
        trees = (stored.tree for stored in held)
        rows = tables.rows(resource.info, trees, self.included) if self.table else map(tables.partial, trees)
        return map(encoded, rows)


@dataclass(frozen=True)
class Listed:
    """A collection, or a part of one, as it was when it was asked for."""

    resource: Resource
    held: Sequence[Stored]
    metadata: Tree

    async def parts(self, form: Form) -> Iterable[bytes]:
        """Write it as JSON, in parts. Others are answered meanwhile, and may write.

        Whole objects are written once for all answers. Rows and metadata are written for each anew, and only as their client reads them:
        otherwise those that wait for slow clients would fill the memory.
        """
        parts = self._parts(form)
        return [part async for part in in_turns(parts)] if form.is_whole else parts

    def _parts(self, form: Form) -> Iterator[bytes]:
        yield encoded(form.around(self.resource, self.metadata)).removesuffix(_EMPTY) + b"["
        for number, item in enumerate(form.items(self.resource, self.held)):
            if number:
                yield b","
            yield item
        yield _EMPTY[1:]


def encoded(tree: Tree) -> bytes:
    """Write JSON."""
    return json.dumps(tree, separators=(",", ":")).encode()


def get(projection: Projection, resource: Resource) -> Tree:
    """Give an object. Raises `Refused` if there is none."""
    stored = projection.get(resource.key)
    if resource.key in projection.unread:
        raise errors.not_yet("no worker has answered for this object yet; ask again in a moment")
    if stored is None:
        raise errors.not_found(resource.info.group, resource.info.plural, resource.name)
    return stored.tree


def selection(resource: Resource, parameters: Parameters) -> Selection:
    """Read what of a collection is wanted. Raises `Refused`."""
    return Selection(resource.namespace, resource.name, parameters.get("labelSelector", ""), parameters.get("fieldSelector", ""))


async def listed(projection: Projection, resource: Resource, parameters: Parameters) -> Listed:
    """Give a collection, or the part of it that a client asks for. Raises `Refused`.

    Parts are made of what is there when they are asked for: an object that is there all the time is in one of them, and once. Their version
    is that of the first part, so a watch that goes on from it tells of all that changed meanwhile. What was created since is in no later
    part: if it is deleted before the watch begins, nobody tells of it.
    """
    wanted = selection(resource, parameters)
    check_all_are_read(projection, resource, wanted)
    limit = number(parameters, "limit")
    after, version = _continued(parameters.get("continue", ""), projection.high)
    # Taken at once: others may write before all was looked at.
    held = list(projection.of_kind(resource.info.kind).items())
    there = (item for item in held if item[1].first <= version)
    matching = [item async for item in in_turns(there) if wanted.has_key(item[0]) and wanted.has_labels(item[1])]
    rows = sorted(item for item in matching if after is None or item[0] > after)
    shown = rows[: min(limit, _LIMIT_MAX)] if limit else rows
    metadata: Tree = {"resourceVersion": str(version)}
    if len(shown) < len(rows):
        metadata |= {"continue": _token(shown[-1][0], version), "remainingItemCount": len(rows) - len(shown)}
        if wanted.by_labels or parameters.get("fieldSelector"):
            del metadata["remainingItemCount"]
    return Listed(resource, [stored for _, stored in shown], metadata)


def check_all_are_read(projection: Projection, resource: Resource, wanted: Selection) -> None:
    """Raise `Refused` if something of a collection was never read: who was told less than all would take the rest for deleted."""
    if any(key.kind == resource.info.kind and wanted.has_key(key) for key in projection.unread):
        raise errors.not_yet("no worker has answered for some of these objects yet; ask again in a moment")


def number(parameters: Parameters, name: str) -> int:
    """Read a whole number that is not negative; 0 if it is not given. Raises `Refused`."""
    text = parameters.get(name) or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise errors.bad_request(f"{name}: {text[:64]!r} is not a whole number that is not negative")
    return int(text)


def _token(key: Key, version: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([*key, version]).encode()).decode()


def _continued(token: str, high: int) -> tuple[Key | None, int]:
    if not token:
        return None, high
    try:
        kind, namespace, name, version = json.loads(base64.urlsafe_b64decode(token[:_TOKEN_MAX].encode()))
    except (ValueError, TypeError, RecursionError):
        raise errors.bad_request("continue: this token is none of this server; list again without it") from None
    if not all(isinstance(part, str) for part in (kind, namespace, name)) or not isinstance(version, int):
        raise errors.bad_request("continue: this token is none of this server; list again without it")
    return Key(kind, namespace, name), version
