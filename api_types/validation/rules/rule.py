"""The type of a rule, its context and its findings."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api_types.resources.parts.base_types import Manifest, ResourceModel
from api_types.validation.problems import Loc

Check = Callable[[str], str | None]


@dataclass(frozen=True)
class Checks:
    """Checks that this package may not import and gets from its caller; each returns the problem with a text, or None."""

    selector: Check
    """The full static check of a CEL device selector."""
    selector_cost: Callable[[str], int]
    """What a selector that passes the check may cost, its patterns included."""
    quantity: Check
    """Whether a text is a Kubernetes quantity."""
    version: Check
    """Whether a text is a strict semantic version."""


NO_CHECKS = Checks(selector=lambda _: None, selector_cost=lambda _: 0, quantity=lambda _: None, version=lambda _: None)
"""Accepts all three: for reading back what was admitted before."""


@dataclass(frozen=True)
class Finding:
    """What a rule reports at a location. A warning does not reject the object."""

    loc: Loc
    text: str
    is_warning: bool = False


@dataclass(frozen=True)
class RuleContext:
    """The location of the object that a rule checks, its manifest, and the checks that the rule may call."""

    at: Loc
    manifest: Manifest
    checks: Checks

    def error(self, text: str, *below: str | int) -> Finding:
        """Reject the object because of a field below this location, or of the location itself."""
        return Finding((*self.at, *below), text)

    def warning(self, text: str, *below: str | int) -> Finding:
        """Accept the object with a warning about a field below this location."""
        return Finding((*self.at, *below), text, is_warning=True)


Findings = Iterator[Finding]
Rule = Callable[[Any, RuleContext], Findings]
Rules = Mapping[type[ResourceModel], tuple[Rule, ...]]


def set_fields(block: ResourceModel, *attributes: str) -> list[str]:
    """Give the wire names of those attributes that are set."""
    return [type(block).model_fields[name].alias or name for name in attributes if getattr(block, name) is not None]
