"""The public functions of this package.

Read text with `parse`, check it with `admit_all`, check a change with `admit_update`,
write a manifest with `dump`, and read a stored manifest with `load`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from api_types.resources.kinds import BY_KIND, UnknownKind
from api_types.resources.parts.base_types import Manifest, ObjectMeta
from api_types.resources.secrets import CORE_VERSION
from api_types.validation.admission import (
    UNNAMED,
    Admitted,
    admit_scale,
    check_part,
    title,
    without_unknown_fields,
)
from api_types.validation.admission import admit as admit_kind
from api_types.validation.documents import Document, parse
from api_types.validation.problems import InvalidManifest, Problem
from api_types.validation.rules.rule import NO_CHECKS, Checks
from api_types.validation.store_admission import STORED, admit_stored
from api_types.validation.updates import (
    admit_update,
    is_taken_while_deleting,
    update_warnings,
)

__all__ = [
    "NO_CHECKS",
    "Admitted",
    "Checks",
    "Document",
    "InvalidManifest",
    "Manifest",
    "ObjectMeta",
    "Problem",
    "admit",
    "admit_all",
    "admit_scale",
    "admit_update",
    "check_part",
    "dump",
    "is_taken_while_deleting",
    "load",
    "parse",
    "update_warnings",
    "without_unknown_fields",
]


def admit(
    document: Mapping[Any, Any], checks: Checks, namespace: str = "default"
) -> Admitted:
    """Admit one document: one of the nine kinds, a Secret or a ConfigMap.

    `namespace` is the default for namespaced objects.

    Raises:
        InvalidManifest: it contains every problem of the object.

    """
    kind = document.get("kind")
    if (
        isinstance(kind, str)
        and kind in STORED
        and document.get("apiVersion") == CORE_VERSION
    ):
        return admit_stored(document, namespace)
    return admit_kind(document, checks, namespace)


def admit_all(
    documents: Iterable[Mapping[Any, Any]], checks: Checks, namespace: str = "default"
) -> list[Admitted]:
    """Admit documents in order.

    Raises:
        InvalidManifest: it contains every problem of every document, including repeated
            objects. A document without kind or name is identified by its file and
            number.

    """
    admitted: list[Admitted] = []
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for number, document in enumerate(documents, start=1):
        who = _identity(document, namespace)
        place = (
            document.place if isinstance(document, Document) else f"document {number}"
        )
        if who and who in seen:
            text = f"given twice, in {seen[who]} and in {place}; keep one"
            problems.append(Problem(who, "metadata.name", text))
        seen.setdefault(who, place)
        try:
            admitted.append(admit(document, checks, namespace))
        except InvalidManifest as error:
            if who or not isinstance(document, Document):
                problems += error.problems
            else:
                problems += [_placed(place, problem) for problem in error.problems]
    if problems:
        raise InvalidManifest(problems)
    return admitted


def _placed(place: str, problem: Problem) -> Problem:
    """Add the position of a document to its problem, if its kind or name is missing."""
    return replace(
        problem,
        object=place if problem.object == UNNAMED else f"{place}: {problem.object}",
    )


def _identity(document: Mapping[Any, Any], default_namespace: str) -> str:
    """Return the title of the object in a document, valid or not, or ""."""
    kind, metadata = document.get("kind"), document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if (
        not isinstance(metadata, Mapping)
        or not (isinstance(kind, str) and kind)
        or not (isinstance(name, str) and name)
    ):
        return ""
    info = BY_KIND.get(kind)
    given = metadata.get("namespace")
    namespace = given if isinstance(given, str) and given else default_namespace
    return title(kind, namespace if info is None or info.namespaced else "", name)


def dump(manifest: Manifest) -> dict[str, Any]:
    """Return the canonical wire form: the written values and defaults, without nulls."""
    return manifest.wire()


def load(document: Mapping[str, Any]) -> Manifest:
    """Parse a stored object with its status.

    It tolerates fields of other releases.

    Raises:
        UnknownKind: the kind is unknown.
        ValidationError: the object does not match the model.

    """
    kind = document.get("kind")
    info = BY_KIND.get(kind) if isinstance(kind, str) else None
    if info is None:
        raise UnknownKind(f"unknown kind {kind}")
    return info.model.model_validate(document)
