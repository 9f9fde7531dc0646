"""References to objects: `md/qwen`, `md qwen`, `modeldeployments/qwen`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api_types.messages.delivery import EntityRef, ReceiverT, Signal
from api_types.messages.signals import receiver_of, signals_of
from api_types.names import cloud_cluster_id, workflow_id
from api_types.resources.kinds import BY_KIND, SERVED, KindInfo, UnknownKind, find_kind
from api_types.resources.parts.base_types import Manifest
from client.errors import Refused

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class Target:
    """One object by its kind, namespace (empty for cluster-scoped kinds) and name."""

    kind: KindInfo
    namespace: str
    name: str

    @classmethod
    def of(cls, kind: KindInfo, namespace: str | None, name: str) -> "Target":
        """Refer to an object; a cluster-scoped kind has no namespace, and some have one for all their objects, whatever was given."""
        return cls(kind, (kind.home or namespace or DEFAULT_NAMESPACE) if kind.namespaced else "", name)

    @property
    def owner(self) -> "Target":
        """Refer to the object whose workflow shows this one: itself, for most kinds."""
        return Target.of(BY_KIND[self.kind.shown_by], None, self.name) if self.kind.shown_by else self

    @property
    def workflow_id(self) -> str:
        """Give the id of the workflow that shows the object."""
        owner = self.owner
        return workflow_id(owner.kind.kind, owner.namespace, owner.name)

    def receiving(self, signal: Signal[ReceiverT, Any]) -> EntityRef[ReceiverT]:
        """Refer to that workflow as one that takes a signal. Raises `TypeError` if its kind does not."""
        if signals_of(receiver_of(self.kind.kind)).get(signal.name) is not signal:
            raise TypeError(f"{self.title} takes no {signal!r}")
        return EntityRef(self.workflow_id)

    @property
    def label(self) -> str:
        """Name the object as commands take and print it: `modeldeployment/qwen`."""
        return f"{self.kind.singular}/{self.name}"

    @property
    def title(self) -> str:
        """Name the object in a sentence: `ModelDeployment ml-team/qwen`."""
        return f"{self.kind.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind.kind} {self.name}"

    @property
    def command(self) -> str:
        """Name the object as arguments of another command: `md/qwen -n ml-team`."""
        short = f"{self.kind.short}/{self.name}"
        return f"{short} -n {self.namespace}" if self.namespace not in ("", DEFAULT_NAMESPACE, self.kind.home) else short


@dataclass(frozen=True)
class CloudTarget(Target):
    """What the InferenceCluster of a uid has at its cloud."""

    uid: str

    @property
    def workflow_id(self) -> str:
        """Give the id of its CloudCluster."""
        return cloud_cluster_id(self.name, self.uid)


# Not one of the kinds that users name, but its workflow is queried and signalled like that of an object.
SCHEDULER = Target(
    KindInfo(kind="FleetScheduler", plural="fleetschedulers", short="fleetscheduler", namespaced=False, model=Manifest), "", "default"
)


def kind_named(text: str) -> KindInfo:
    """Find a kind by any of its names. Raises `Refused` with a hint."""
    try:
        return find_kind(text)
    except UnknownKind as error:
        raise Refused(
            str(error), next_step="`modelplane schema` lists the kinds; an object is written TYPE/NAME, such as `md/qwen`"
        ) from error


def with_workflow(kind: KindInfo, name: str | None) -> KindInfo:
    """Give the kind back if its objects have workflows, and are not only shown by those of another kind. Raises `Refused` otherwise."""
    if kind.shown_by:
        owner = BY_KIND[kind.shown_by]
        raise Refused(
            f"{kind.kind}{f' {name}' if name else ''} is written by the control plane, and can only be shown: `get` and `describe` do",
            next_step=f"name the {owner.kind} that it belongs to: `{owner.short}/{name or 'NAME'}`",
        )
    return kind


def kinds_and_names(words: Sequence[str]) -> list[tuple[KindInfo, str | None]]:
    """Parse the arguments of a command: `md`, `md,ic`, `all`, `md a b`, `md/a ic/b`. A missing name is None. Raises `Refused`."""
    if not words:
        raise Refused("name a kind or an object", next_step="for example `md`, `md qwen` or `md/qwen`; `modelplane schema` lists the kinds")
    if any("/" in word for word in words):
        return [_slashed(word) for word in words]
    kinds = _kinds(words[0])
    if not kinds:
        raise Refused(f"{words[0]!r} names no kind", next_step="for example `md`, or `md,ic` for several")
    names = words[1:]
    if not names:
        return [(kind, None) for kind in kinds]
    if len(kinds) > 1:
        raise Refused(
            f"several kinds cannot share names: {', '.join(each.kind for each in kinds)}",
            next_step=f"write the kind of each name: `{' '.join(f'{kinds[0].short}/{name}' for name in names)}`",
        )
    if not all(name.strip() for name in names):
        # As from a script whose variable is unset. It stands for no object, and not for all of them.
        raise Refused(f"a name of {kinds[0].kind} is empty", next_step=f"write `{kinds[0].short}/NAME` for each object")
    return [(kinds[0], name) for name in names]


def objects_named(words: Sequence[str], namespace: str | None) -> list[Target]:
    """Parse arguments that must name objects with a workflow, not whole kinds. Raises `Refused`."""
    found = kinds_and_names(words)
    nameless = [kind for kind, name in found if name is None]
    if nameless:
        raise Refused(f"which {nameless[0].kind}?", next_step=f"write `{nameless[0].short}/NAME`")
    return [Target.of(with_workflow(kind, name), namespace, name) for kind, name in found if name is not None]


def _kinds(text: str) -> list[KindInfo]:
    if text == "all":
        return list(SERVED)
    return [kind_named(word) for word in text.split(",") if word]


def _slashed(word: str) -> tuple[KindInfo, str]:
    kind, slash, name = word.partition("/")
    if not (slash and kind and name.strip() and "/" not in name):
        raise Refused(
            f"{word!r} does not name an object", next_step="write TYPE/NAME for each, such as `md/qwen ic/oslo`; -n names the namespace"
        )
    return kind_named(kind), name
