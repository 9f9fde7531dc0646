"""Which form of an answer a client wants, from its Accept header.

Only JSON is spoken. A client that asks for protobuf first, as Kubernetes' own do, gets JSON and goes on: answering 406 would keep the
namespaces of an aggregating cluster from being deleted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

JSON = "application/json"
_MAX = 4096


@dataclass(frozen=True)
class Accepted:
    """One entry: the media type, and its parameters such as `as=Table`."""

    media_type: str
    parameters: dict[str, str] = field(default_factory=dict)

    @property
    def is_json(self) -> bool:
        """Whether JSON answers it."""
        return self.media_type in (JSON, "application/*", "*/*")

    def is_a(self, kind: str, group: str, *versions: str) -> bool:
        """Whether it asks for another representation of the object."""
        asked = self.parameters
        return self.is_json and (asked.get("as"), asked.get("g")) == (kind, group) and asked.get("v") in versions


def accepted(header: str) -> list[Accepted]:
    """Read an Accept header, the first choice first; without one, JSON."""
    return list(_entries(header[:_MAX])) or [Accepted(JSON)]


def _entries(header: str) -> Iterator[Accepted]:
    for entry in header.split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        if media_type:
            pairs = (parameter.partition("=") for parameter in parameters)
            yield Accepted(media_type.lower(), {name.strip(): value.strip().strip('"') for name, _, value in pairs})


def wants_table(header: str) -> bool:
    """Whether the client prefers a Table to the objects."""
    for entry in accepted(header):
        if entry.is_a("Table", "meta.k8s.io", "v1", "v1beta1"):
            return True
        if entry.is_json and "as" not in entry.parameters:
            return False
    return False


def wants_metadata(header: str) -> bool:
    """Whether the client prefers metadata alone to the objects."""
    for entry in accepted(header):
        if any(entry.is_a(kind, "meta.k8s.io", "v1", "v1beta1") for kind in ("PartialObjectMetadata", "PartialObjectMetadataList")):
            return True
        if entry.is_json and "as" not in entry.parameters:
            return False
    return False
