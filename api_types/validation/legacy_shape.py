"""The flat layout of earlier ModelDeployments, without `spec.template`.

In this layout the template's fields are directly under `spec`. Admission still accepts
the layout and moves the fields under `spec.template.spec` before any check, so that
both layouts of one deployment are stored as the same bytes. Removed fields are rejected
with the name of their replacement; they are never converted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api_types.validation.problems import Loc

MOVED = ("engines", "clusterSelector", "modelCacheRef", "serving", "tolerations")

_TO_MEMBERS = (
    "field was removed; describe pods in engines[].members and put parallelism in "
    "engine args"
)
_TO_PHASES = (
    "field was removed; set serving.mode: PrefillDecode and give each engine a "
    "phase and copies"
)
_TO_CACHE = (
    "field was removed; let the engine fetch the weights, or stage them with a "
    "ModelCache and set modelCacheRef"
)
REMOVED = {
    "workers": _TO_MEMBERS,
    "topology": _TO_MEMBERS,
    "parallelism": _TO_MEMBERS,
    "engine": (
        "field was removed; describe the engine in "
        "engines[].members[].template.spec.containers"
    ),
    "prefill": _TO_PHASES,
    "decode": _TO_PHASES,
    "poolSelector": "field was removed; select devices in engines[].members[].nodeSelector.devices",
    "nodeSelector": "field was removed; select devices in engines[].members[].nodeSelector.devices",
    "scaling": (
        "field was removed; set spec.replicas, or send the signal `scale` "
        "(`modelplane scale`)"
    ),
    "source": _TO_CACHE,
    "huggingFace": _TO_CACHE,
    "model": "field was removed; name the model in the engine's args",
}

WARNING = "flat ModelDeployment shape is deprecated; stored as spec.template.spec"

_CANONICAL: Loc = ("spec", "template", "spec")


@dataclass(frozen=True)
class Unflattened:
    """The spec in canonical layout, with the problems of its layout."""

    spec: Any
    problems: tuple[tuple[Loc, str], ...] = ()
    was_flat: bool = False

    def as_written(self, loc: Loc) -> Loc:
        """Convert a location in the canonical layout to the layout that the user wrote."""
        if self.was_flat and loc[: len(_CANONICAL)] == _CANONICAL:
            return ("spec", *loc[len(_CANONICAL) :])
        return loc


def unflatten(spec: Any) -> Unflattened:
    """Move a flat spec under `template.spec`; a canonical one is returned unchanged."""
    if not isinstance(spec, Mapping):
        return Unflattened(spec)
    problems: list[tuple[Loc, str]] = [
        (("spec", key), REMOVED[key]) for key in spec if key in REMOVED
    ]
    moved = {key: spec[key] for key in spec if key in MOVED}
    rest = {
        key: value
        for key, value in spec.items()
        if key not in REMOVED and key not in MOVED
    }
    if "template" in rest:
        for key in moved:
            text = (
                "not allowed together with spec.template; "
                f"move it to spec.template.spec.{key}"
            )
            problems.append((("spec", key), text))
        return Unflattened(rest, tuple(problems))
    if moved:
        return Unflattened(
            {**rest, "template": {"spec": moved}}, tuple(problems), was_flat=True
        )
    return Unflattened(rest, tuple(problems))
