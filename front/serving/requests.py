"""Parses Kubernetes paths into resources."""

from dataclasses import dataclass

from api_types.resources.kinds import SERVED, KindInfo
from front.access.access_file import ANY, Attempt
from front.store.projection import ObjectKey

_BY_PLURAL = {(info.group, info.version, info.plural): info for info in SERVED}
GROUP_VERSIONS = tuple(dict.fromkeys((info.group, info.version) for info in SERVED))
SCALE, STATUS, METRICS, EVENTS = "scale", "status", "metrics", "events"
# The maximum length of a Kubernetes name.
_PART_MAX = 253


@dataclass(frozen=True)
class RequestedResource:
    """A collection (`name` is empty), an object, or a subresource.

    An empty `namespace` of a namespaced kind means all namespaces.
    """

    info: KindInfo
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> ObjectKey:
        """The key of the object in the projection."""
        return ObjectKey(self.info.kind, self.namespace, self.name)

    @property
    def identity(self) -> tuple[str, str, str]:
        """The group, plural and name, as errors name the object."""
        return self.info.group, self.info.plural, self.name

    @property
    def plural(self) -> str:
        """The resource with its subresource, as rules name it."""
        if self.subresource:
            return f"{self.info.plural}/{self.subresource}"
        return self.info.plural

    def attempt(self, verb: str) -> Attempt:
        """Return the attempt that a user needs a right for."""
        namespace = (self.namespace or ANY) if self.info.namespaced else ""
        return Attempt(verb, self.plural, namespace, self.name, self.info.namespaced)


def resource_of(path: str) -> RequestedResource | None:
    """Parse `/apis/GROUP/VERSION[/namespaces/NS]/PLURAL[/NAME[/SUB]]`.

    Returns None if this server does not serve the path.
    """
    namespace = ""
    parts = path.strip("/").split("/")
    if (
        not all(parts)
        or not path.isprintable()
        or any(len(part) > _PART_MAX for part in parts)
    ):
        return None
    match parts:
        case ["apis", group, version, "namespaces", namespace, plural, *below]:
            pass
        case ["apis", group, version, plural, *below]:
            pass
        case _:
            return None
    info = _BY_PLURAL.get((group, version, plural))
    match below:
        case [] | [_] | [_, _]:
            name, subresource = (*below, "", "")[:2]
        case _:
            return None
    if info is None or bool(namespace) > info.namespaced:
        return None
    if (name and info.namespaced and not namespace) or subresource not in subresources(
        info
    ):
        return None
    return RequestedResource(info, namespace, name, subresource)


def below_of(path: str) -> RequestedResource | None:
    """Return the object of a path with an unknown subresource; None for other paths."""
    above, _, subresource = path.rstrip("/").rpartition("/")
    found = resource_of(above)
    return (
        found
        if subresource and found and found.name and not found.subresource
        else None
    )


def namespace_of(path: str) -> str:
    """Return the NAME of `/api/v1/namespaces/NAME`; an empty string for other paths."""
    match path.strip("/").split("/"):
        case ["api", "v1", "namespaces", name] if (
            path.isprintable() and len(name) <= _PART_MAX
        ):
            return name
    return ""


def subresources(info: KindInfo) -> tuple[str, ...]:
    """Return the subresources of a kind; the first is empty, for the object itself."""
    return ("", STATUS, SCALE) if info.scale else ("", STATUS)


def governed(info: KindInfo) -> tuple[str, ...]:
    """Return the resources of a kind that rules can name.

    Scalable kinds also have resources that are served below `/v1`.
    """
    below_v1 = (METRICS, EVENTS) if info.scale else ()
    return tuple(
        f"{info.plural}/{name}" if name else info.plural
        for name in (*subresources(info), *below_v1)
    )


def verbs(info: KindInfo) -> list[str]:
    """Return the verbs that a kind supports."""
    found = ["get", "list", "watch"]
    if info.user_may_apply:
        found += ["create", "delete", "deletecollection", "patch", "update"]
    return sorted(found)
