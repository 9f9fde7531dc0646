"""The program of an engine's container, as admission and rendering see it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class EngineProgram(Protocol):
    """The parts of a container that determine how its engine runs."""

    @property
    def image(self) -> str:
        """The image of the container."""
        ...

    @property
    def command(self) -> Sequence[str]:
        """The entry point; empty for the entry point of the image."""
        ...

    @property
    def args(self) -> Sequence[str]:
        """The arguments of the entry point."""
        ...

    @property
    def variables(self) -> Mapping[str, str | None]:
        """The environment; None is a value from a Secret, a ConfigMap or the pod."""
        ...


@dataclass(frozen=True)
class ContainerProgram:
    """A program whose parts are given as values."""

    image: str
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    variables: Mapping[str, str | None] = field(default_factory=dict)
