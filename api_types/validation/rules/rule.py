"""What a rule is, and the marks that it may leave."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api_types.resources.parts.base_types import Manifest, Shape
from api_types.validation.problems import Loc

Check = Callable[[str], str | None]


@dataclass(frozen=True)
class Checks:
    """What this package may not import and is handed instead; each gives the problem with a text, or None."""

    selector: Check
    """The full static check of a CEL device selector."""
    quantity: Check
    """Whether a text is a Kubernetes quantity."""
    version: Check
    """Whether a text is a strict semantic version."""


NO_CHECKS = Checks(selector=lambda _: None, quantity=lambda _: None, version=lambda _: None)
"""Accepts all three: for reading back what was admitted before."""


@dataclass(frozen=True)
class Finding:
    """What a rule says about a location. A warning does not refuse the object."""

    loc: Loc
    text: str
    is_warning: bool = False


@dataclass(frozen=True)
class Here:
    """Where the object that a rule looks at stands, and what else the rule may ask."""

    at: Loc
    manifest: Manifest
    checks: Checks

    def fault(self, text: str, *below: str | int) -> Finding:
        """Refuse the object for a field below this place; for this place itself if none is named."""
        return Finding((*self.at, *below), text)

    def warn(self, text: str, *below: str | int) -> Finding:
        """Accept the object, but say something about a field below this place."""
        return Finding((*self.at, *below), text, is_warning=True)


Findings = Iterator[Finding]
Rule = Callable[[Any, Here], Findings]
Rules = Mapping[type[Shape], tuple[Rule, ...]]


def set_fields(block: Shape, *attributes: str) -> list[str]:
    """Give the wire names of those attributes that are set."""
    return [type(block).model_fields[name].alias or name for name in attributes if getattr(block, name) is not None]
