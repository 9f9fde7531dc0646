"""Collect all problems of an input before raising an error.

A user should not fix one problem only to get the next: readers add every problem here,
and one error lists all of them.
"""

from dataclasses import dataclass, field

from api_types.payloads.limits import shortened

# Findings quote values and become conditions, so their length is limited.
_BYTES_MAX = 2048


class NotRenderable(ValueError):
    """A replica or cache that cannot be rendered for this cluster.

    `reason` is the reason of the condition `ModelAccepted`=False.
    """

    reason = ""

    def __init__(self, subject: str, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__(f"{subject}: " + "; ".join(problems))


class InvalidSpec(NotRenderable):
    """The spec can never be rendered as written."""

    reason = "InvalidSpec"


class DRAUnavailable(NotRenderable):
    """The replica claims devices, but the cluster does not serve `resource.k8s.io`."""

    reason = "DRAUnavailable"


class RoutingUnsupported(NotRenderable):
    """The cluster's routing does not support this serving mode."""

    reason = "RoutingUnsupported"


class ServingStackMissing(NotRenderable):
    """The cluster does not serve a kind that the replica needs."""

    reason = "ServingStackMissing"


class ImageVolumesUnsupported(NotRenderable):
    """The cluster is too old to mount images as volumes."""

    reason = "ImageVolumesUnsupported"


class TopologyUnsupported(NotRenderable):
    """The cluster does not support the placement that the replica requests."""

    reason = "TopologyUnsupported"


@dataclass
class Findings:
    """Problems and warnings in the order in which they were found, without duplicates."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def problem(self, where: str, text: str) -> None:
        """Add a problem that makes rendering impossible."""
        _once(self.problems, where, text)

    def warn(self, where: str, text: str) -> None:
        """Add a warning about something that is rendered but is probably not intended."""
        _once(self.warnings, where, text)

    def raise_if_any(self, subject: str) -> None:
        """Raise InvalidSpec with every problem so far."""
        if self.problems:
            raise InvalidSpec(subject, tuple(self.problems))


def _once(sentences: list[str], where: str, text: str) -> None:
    sentence = shortened(f"{where}: {text}" if where else text, _BYTES_MAX)
    if sentence not in sentences:
        sentences.append(sentence)
