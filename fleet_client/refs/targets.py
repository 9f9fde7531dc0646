"""References to objects: `md/qwen`, `md qwen`, `modeldeployments/qwen`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from api_types.names import cloud_cluster_id, workflow_id
from api_types.resources.kinds import BY_KIND, SERVED, KindInfo, UnknownKind, find_kind
from api_types.resources.parts.base_types import Manifest
from fleet_client.errors import Refused

if TYPE_CHECKING:  # messages are slow to import, and reading needs none
    from api_types.messages.delivery import EntityRef, ReceiverT, Signal

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class Target:
    """One object by its kind, namespace (empty for cluster-scoped kinds) and name."""

    kind: KindInfo
    namespace: str
    name: str

    @classmethod
    def of(cls, kind: KindInfo, namespace: str | None, name: str) -> Target:
        """Return the reference to an object.

        The namespace is empty for a cluster-scoped kind, and fixed for a kind whose
        objects share one namespace.
        """
        return cls(
            kind,
            (kind.home or namespace or DEFAULT_NAMESPACE) if kind.namespaced else "",
            name,
        )

    @property
    def owner(self) -> Target:
        """The object whose workflow shows this one: itself, for most kinds."""
        return (
            Target.of(BY_KIND[self.kind.shown_by], None, self.name)
            if self.kind.shown_by
            else self
        )

    @property
    def workflow_id(self) -> str:
        """The id of the workflow that shows the object."""
        owner = self.owner
        return workflow_id(owner.kind.kind, owner.namespace, owner.name)

    def receiving(self, signal: Signal[ReceiverT, Any]) -> EntityRef[ReceiverT]:
        """Return a reference to the workflow as the receiver of a signal.

        Raise `TypeError` if its kind does not receive that signal.
        """
        from api_types.messages.delivery import EntityRef  # noqa: PLC0415 - as above
        from api_types.messages.signals import receiver_of, signals_of  # noqa: PLC0415

        if signals_of(receiver_of(self.kind.kind)).get(signal.name) is not signal:
            raise TypeError(f"{self.title} takes no {signal!r}")
        return EntityRef(self.workflow_id)

    @property
    def label(self) -> str:
        """The name that commands read and print: `modeldeployment/qwen`."""
        return f"{self.kind.singular}/{self.name}"

    @property
    def title(self) -> str:
        """The name in a sentence: `ModelDeployment ml-team/qwen`."""
        return (
            f"{self.kind.kind} {self.namespace}/{self.name}"
            if self.namespace
            else f"{self.kind.kind} {self.name}"
        )

    @property
    def command(self) -> str:
        """The arguments of a command: `md/qwen -n ml-team`."""
        short = f"{self.kind.short}/{self.name}"
        return (
            f"{short} -n {self.namespace}"
            if self.namespace not in ("", DEFAULT_NAMESPACE, self.kind.home)
            else short
        )


@dataclass(frozen=True)
class CloudTarget(Target):
    """The cloud objects of the InferenceCluster with a uid."""

    uid: str

    @property
    def workflow_id(self) -> str:
        """The id of the InferenceCluster's CloudCluster workflow."""
        return cloud_cluster_id(self.name, self.uid)


# Users cannot name this kind, but its workflow is queried and signalled like that of an
# object.
SCHEDULER = Target(
    KindInfo(
        kind="FleetScheduler",
        plural="fleetschedulers",
        short="fleetscheduler",
        namespaced=False,
        model=Manifest,
    ),
    "",
    "default",
)


def kind_named(text: str) -> KindInfo:
    """Return the kind with this name, in any of its forms.

    Raise `Refused` with a hint.
    """
    try:
        return find_kind(text)
    except UnknownKind as error:
        raise Refused(
            str(error),
            next_step=(
                "`modelplane schema` lists the kinds; an object is written "
                "TYPE/NAME, such as `md/qwen`"
            ),
        ) from error


def with_workflow(kind: KindInfo, name: str | None) -> KindInfo:
    """Return the kind if its objects have workflows.

    Raise `Refused` otherwise. The objects of other kinds are only shown by workflows of
    another kind.
    """
    if kind.shown_by:
        owner = BY_KIND[kind.shown_by]
        title = f"{kind.kind} {name}" if name else kind.kind
        raise Refused(
            f"{title} is written by the control plane: only `get` and `describe` accept it",
            next_step=f"name its {owner.kind}: `{owner.short}/{name or 'NAME'}`",
        )
    return kind


def kinds_and_names(words: Sequence[str]) -> list[tuple[KindInfo, str | None]]:
    """Parse the arguments of a command: `md`, `md,ic`, `all`, `md a b`, `md/a ic/b`.

    A missing name is None. Raise `Refused`.
    """
    if not words:
        raise Refused(
            "name a kind or an object",
            next_step=(
                "for example `md`, `md qwen` or `md/qwen`; `modelplane schema` lists "
                "the kinds"
            ),
        )
    if any("/" in word for word in words):
        return [_slashed(word) for word in words]
    kinds = _kinds(words[0])
    if not kinds:
        raise Refused(
            f"{words[0]!r} names no kind",
            next_step="for example `md`, or `md,ic` for several",
        )
    names = words[1:]
    if not names:
        return [(kind, None) for kind in kinds]
    if len(kinds) > 1:
        listed = ", ".join(each.kind for each in kinds)
        written = " ".join(f"{kinds[0].short}/{name}" for name in names)
        raise Refused(
            f"several kinds cannot share names: {listed}",
            next_step=f"write the kind of each name: `{written}`",
        )
    if not all(name.strip() for name in names):
        # An empty name may be an unset variable of a script. It must not mean all
        # objects.
        raise Refused(
            f"a name of {kinds[0].kind} is empty",
            next_step=f"write `{kinds[0].short}/NAME` for each object",
        )
    return [(kinds[0], name) for name in names]


def objects_named(words: Sequence[str], namespace: str | None) -> list[Target]:
    """Parse arguments that must name objects with a workflow, not whole kinds.

    Raise `Refused`.
    """
    found = kinds_and_names(words)
    nameless = [kind for kind, name in found if name is None]
    if nameless:
        raise Refused(
            f"which {nameless[0].kind}?", next_step=f"write `{nameless[0].short}/NAME`"
        )
    return [
        Target.of(with_workflow(kind, name), namespace, name)
        for kind, name in found
        if name is not None
    ]


def _kinds(text: str) -> list[KindInfo]:
    if text == "all":
        return list(SERVED)
    return [kind_named(word) for word in text.split(",") if word]


def _slashed(word: str) -> tuple[KindInfo, str]:
    kind, slash, name = word.partition("/")
    if not (slash and kind and name.strip() and "/" not in name):
        raise Refused(
            f"{word!r} does not name an object",
            next_step="write TYPE/NAME for each, such as `md/qwen ic/oslo`; -n names the namespace",
        )
    return kind_named(kind), name
