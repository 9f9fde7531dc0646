"""What a request is about, read from its path as Kubernetes lays it out."""

from dataclasses import dataclass

from api_types.resources.kinds import SERVED, KindInfo
from front.access.access_file import ANY, Attempt
from front.store.projection import Key

_BY_PLURAL = {(info.group, info.version, info.plural): info for info in SERVED}
GROUP_VERSIONS = tuple(dict.fromkeys((info.group, info.version) for info in SERVED))
SCALE, STATUS, METRICS, EVENTS = "scale", "status", "metrics", "events"
# No name of Kubernetes is longer.
_PART_MAX = 253


@dataclass(frozen=True)
class Resource:
    """A collection (`name` is empty), an object, or a subresource. An empty `namespace` of a namespaced kind means all."""

    info: KindInfo
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        """Name the object in the projection."""
        return Key(self.info.kind, self.namespace, self.name)

    @property
    def plural(self) -> str:
        """Name the resource as rules do."""
        return f"{self.info.plural}/{self.subresource}" if self.subresource else self.info.plural

    def attempt(self, verb: str) -> Attempt:
        """Say what a user wants to do here."""
        namespace = (self.namespace or ANY) if self.info.namespaced else ""
        return Attempt(verb, self.plural, namespace, self.name, self.info.namespaced)


def resource_of(path: str) -> Resource | None:
    """Read `/apis/GROUP/VERSION[/namespaces/NS]/PLURAL[/NAME[/SUB]]`; None if nothing of ours is there."""
    namespace = ""
    parts = path.strip("/").split("/")
    if not all(parts) or not path.isprintable() or any(len(part) > _PART_MAX for part in parts):
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
    if (name and info.namespaced and not namespace) or subresource not in subresources(info):
        return None
    return Resource(info, namespace, name, subresource)


def namespace_of(path: str) -> str:
    """Give the namespace that `/api/v1/namespaces/NAME` names; empty for another path."""
    match path.strip("/").split("/"):
        case ["api", "v1", "namespaces", name] if path.isprintable() and len(name) <= _PART_MAX:
            return name
    return ""


def subresources(info: KindInfo) -> tuple[str, ...]:
    """Give the subresources of a kind, the object itself first."""
    return ("", STATUS, SCALE) if info.scale else ("", STATUS)


def governed(info: KindInfo) -> tuple[str, ...]:
    """Give the resources of a kind that rules are about: what is scaled has some that are served below `/v1`."""
    below_v1 = (METRICS, EVENTS) if info.scale else ()
    return tuple(f"{info.plural}/{name}" if name else info.plural for name in (*subresources(info), *below_v1))


def verbs(info: KindInfo) -> list[str]:
    """Give what can be done with objects of a kind."""
    reading = ["get", "list", "watch"]
    return ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"] if info.user_may_apply else reading
