"""Chooses the form of a response from the Accept header.

Responses are always JSON. A client that prefers protobuf, as Kubernetes' own clients
do, accepts JSON too. A client that accepts nothing else gets 406.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

JSON = "application/json"
ONLY_JSON = f"only the following media types are accepted: {JSON}"
TABLE = "Table"
PARTIAL, PARTIAL_LIST = "PartialObjectMetadata", "PartialObjectMetadataList"
_MAX = 4096


@dataclass(frozen=True)
class Accepted:
    """An entry of an Accept header: a media type and parameters such as `as=Table`."""

    media_type: str
    parameters: dict[str, str] = field(default_factory=dict)

    @property
    def is_json(self) -> bool:
        """Return whether JSON satisfies the entry."""
        return self.media_type in (JSON, "application/*", "*/*")

    def is_a(self, kind: str, group: str, *versions: str) -> bool:
        """Return whether it requests this representation of an object."""
        asked = self.parameters
        return (
            self.is_json
            and (asked.get("as"), asked.get("g")) == (kind, group)
            and asked.get("v") in versions
        )


def accepted(header: str) -> list[Accepted]:
    """Parse an Accept header in order of preference; JSON without one."""
    return list(_entries(header[:_MAX])) or [Accepted(JSON)]


def _entries(header: str) -> Iterator[Accepted]:
    for entry in header.split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        if media_type:
            pairs = (parameter.partition("=") for parameter in parameters)
            yield Accepted(
                media_type.lower(),
                {name.strip(): value.strip().strip('"') for name, _, value in pairs},
            )


def accepts_json(header: str) -> bool:
    """Return whether JSON that stands for no other kind satisfies the client."""
    return any(
        entry.is_json and "as" not in entry.parameters for entry in accepted(header)
    )


def form_of(header: str) -> tuple[str, str] | None:
    """Return the first acceptable form: its kind and version, both empty for objects.

    Returns None if the client accepts no form of this server.
    """
    for entry in accepted(header):
        if entry.is_json and "as" not in entry.parameters:
            return "", ""
        for kind in (TABLE, PARTIAL, PARTIAL_LIST):
            if entry.is_a(kind, "meta.k8s.io", "v1", "v1beta1"):
                return kind, entry.parameters["v"]
    return None
