"""Collect all problems before raising.

A user should not fix one error only to get the next: readers add every problem here, and one error names them all.
"""

from dataclasses import dataclass, field

from api_types.payloads.limits import shortened

# Findings quote values, and become conditions.
_BYTES_MAX = 2048


class NotRenderable(ValueError):
    """A replica or cache that cannot be put on this cluster. `reason` is the reason of `ModelAccepted`=False."""

    reason = ""

    def __init__(self, subject: str, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__(f"{subject}: " + "; ".join(problems))


class InvalidSpec(NotRenderable):
    """The spec can never be rendered as written."""

    reason = "InvalidSpec"


class DRAUnavailable(NotRenderable):
    """The cluster serves no version of `resource.k8s.io`, and the replica claims devices."""

    reason = "DRAUnavailable"


class RoutingUnsupported(NotRenderable):
    """The cluster's routing surface cannot carry this serving mode."""

    reason = "RoutingUnsupported"


class ServingStackMissing(NotRenderable):
    """The cluster does not serve a kind that the replica needs."""

    reason = "ServingStackMissing"


class ImageVolumesUnsupported(NotRenderable):
    """The cluster is too old to mount images as volumes."""

    reason = "ImageVolumesUnsupported"


class TopologyUnsupported(NotRenderable):
    """The cluster cannot keep pods together as the replica asks."""

    reason = "TopologyUnsupported"


@dataclass
class Findings:
    """Problems and warnings in the order in which they were found, without duplicates."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def problem(self, where: str, text: str) -> None:
        """Add what makes the input impossible to render."""
        _once(self.problems, where, text)

    def warn(self, where: str, text: str) -> None:
        """Add what will be rendered but is probably not intended."""
        _once(self.warnings, where, text)

    def raise_if_any(self, subject: str) -> None:
        """Raise InvalidSpec with every problem so far."""
        if self.problems:
            raise InvalidSpec(subject, tuple(self.problems))


def _once(sentences: list[str], where: str, text: str) -> None:
    sentence = shortened(f"{where}: {text}" if where else text, _BYTES_MAX)
    if sentence not in sentences:
        sentences.append(sentence)
