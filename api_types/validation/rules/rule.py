"""The type of a rule, its context and its findings."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api_types.resources.parts.base_types import Manifest, ResourceModel
from api_types.validation.problems import Loc

Check = Callable[[str], str | None]


@dataclass(frozen=True)
class Checks:
    """Checks that this package may not import, passed by its caller.

    Each returns the problem with a text, or None.
    """

    selector: Check
    """The full static check of a CEL device selector."""
    selector_cost: Callable[[str], int]
    """The maximum cost of a valid selector, including its patterns."""
    quantity: Check
    """The check of a Kubernetes quantity."""
    version: Check
    """The check of a strict semantic version."""


NO_CHECKS = Checks(
    selector=lambda _: None,
    selector_cost=lambda _: 0,
    quantity=lambda _: None,
    version=lambda _: None,
)
"""Accepts all texts, for loading objects that were admitted before."""


@dataclass(frozen=True)
class Finding:
    """A rule's error or warning at a location. A warning does not reject the object."""

    loc: Loc
    text: str
    is_warning: bool = False


@dataclass(frozen=True)
class RuleContext:
    """The location of the checked object, its manifest, and the checks for the rule."""

    at: Loc
    manifest: Manifest
    checks: Checks

    def error(self, text: str, *below: str | int) -> Finding:
        """Return an error about this location or a field below it.

        It rejects the object.
        """
        return Finding((*self.at, *below), text)

    def warning(self, text: str, *below: str | int) -> Finding:
        """Return a warning about this location or a field below it."""
        return Finding((*self.at, *below), text, is_warning=True)


Findings = Iterator[Finding]
Rule = Callable[[Any, RuleContext], Findings]
Rules = Mapping[type[ResourceModel], tuple[Rule, ...]]


def set_fields(block: ResourceModel, *attributes: str) -> list[str]:
    """Return the wire names of the attributes that are set."""
    return [
        type(block).model_fields[name].alias or name
        for name in attributes
        if getattr(block, name) is not None
    ]
