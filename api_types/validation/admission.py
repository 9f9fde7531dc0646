"""Admit a document: convert a user's tree to a manifest that may be stored.

The steps in order: identify the kind, drop nulls, convert a flat ModelDeployment, apply
defaults and check the structure, then apply the rules. All errors of an object are
reported at once, with paths as the user wrote them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from api_types.payloads.limits import MANIFEST_BYTES_MAX
from api_types.resources.kinds import BY_KIND, KindInfo, describe_unknown
from api_types.resources.model_deployment import ModelDeployment, ModelDeploymentSpec
from api_types.resources.parts.base_types import Manifest, ResourceModel
from api_types.validation.legacy_shape import WARNING, Unflattened, unflatten
from api_types.validation.model_walk import fields_of, show, walk
from api_types.validation.normalize import (
    NotStorable,
    drop_server_fields,
    non_string_keys,
    without_nulls,
)
from api_types.validation.partial import draft
from api_types.validation.problems import InvalidManifest, Loc, Problem, lines_of
from api_types.validation.rules import RULES
from api_types.validation.rules.rule import NO_CHECKS, Checks, Finding, RuleContext
from api_types.validation.wording import describe

_UNKNOWN_FIELD, _OTHER_TYPE = "extra_forbidden", "_type"
UNNAMED = "document"
"""The title of a document without kind and name in its problems."""


@dataclass(frozen=True)
class Admitted:
    """A manifest that may be stored, and warnings for its author."""

    manifest: Manifest
    warnings: tuple[str, ...] = ()
    """Complete lines, formatted like problems."""


def title(kind: str, namespace: str, name: str) -> str:
    """Return the title of an object in a message.

    It is `<Kind> <namespace>/<name>`, or `<Kind> <name>` for a cluster-scoped object.
    """
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def admit(
    document: Mapping[Any, Any], checks: Checks, namespace: str = "default"
) -> Admitted:
    """Admit one document.

    `namespace` is the default for namespaced objects.

    Raises:
        InvalidManifest: it contains every problem of the object.

    """
    kind = document.get("kind")
    info = BY_KIND.get(kind) if isinstance(kind, str) else None
    if info is None or document.get("apiVersion") != info.api_version:
        raise InvalidManifest([_not_identified(document)])
    try:
        raw = without_nulls(document)
    except NotStorable as error:
        raise InvalidManifest(
            [Problem(f"{kind} {_name_of(document)}", "", str(error))]
        ) from None
    drop_server_fields(raw)
    return _Admission(info, raw, checks, namespace).run()


def without_unknown_fields(
    document: Mapping[Any, Any],
) -> tuple[Mapping[Any, Any], tuple[str, ...]]:
    """Return a document without the fields unknown to its kind, and their paths.

    The paths are as the user wrote them. `admit` still rejects all other errors. The
    document is returned unchanged if its fields cannot be identified.
    """
    info = BY_KIND.get(str(document.get("kind")))
    if info is None:
        return document, ()
    try:
        raw = without_nulls(document)
    except NotStorable:
        return document, ()
    drop_server_fields(raw)
    return _Admission(info, raw, NO_CHECKS, "").without_unknown_fields()


def check_part(document: Mapping[Any, Any], namespace: str = "default") -> None:
    """Check a part of a manifest: unknown fields, wrong types, and size.

    The other fields are those of the existing object. A valid part may still produce an
    invalid object.

    Raises:
        InvalidManifest: it contains every problem of the part.

    """
    _Admission(
        BY_KIND[document["kind"]], dict(document), NO_CHECKS, namespace
    ).check_part()


def _not_identified(document: Mapping[Any, Any]) -> Problem:
    kind, api_version = document.get("kind"), document.get("apiVersion")
    shown_kind = kind if isinstance(kind, str) and kind else UNNAMED
    who = f"{shown_kind} {_name_of(document)}".rstrip()
    for field, value in (("apiVersion", api_version), ("kind", kind)):
        if value is None:
            return Problem(who, field, "required field is missing")
        if not isinstance(value, str) or not value:
            return Problem(who, field, "must be a string that is not empty")
    return Problem(who, *describe_unknown(str(api_version), str(kind)))


def _name_of(document: Mapping[Any, Any]) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""


class _Admission:
    """One run of the admission steps over one document of a known kind."""

    def __init__(
        self, info: KindInfo, raw: dict[str, Any], checks: Checks, namespace: str
    ) -> None:
        self.info = info
        self.written = raw
        self.checks = checks
        self.errors: list[tuple[Loc, str]] = list(non_string_keys(raw))
        self.warnings: list[tuple[Loc, str]] = []
        self.layout = Unflattened(raw.get("spec"))
        metadata = raw.get("metadata", {})
        self.metadata = dict(metadata) if isinstance(metadata, Mapping) else metadata
        self.title = f"{info.kind} {_name_of(raw) or '(no name)'}"
        if isinstance(self.metadata, dict):
            self._set_namespace(self.metadata, namespace)

    def _set_namespace(self, metadata: dict[str, Any], default: str) -> None:
        given = metadata.get("namespace")
        if not self.info.namespaced:
            if metadata.pop("namespace", None):
                text = f"ignored; {self.info.kind} is cluster-scoped"
                self.warnings.append((("metadata", "namespace"), text))
            return
        metadata.setdefault("namespace", default)
        self.title = title(
            self.info.kind,
            given if isinstance(given, str) else default,
            _name_of(self.written) or "(no name)",
        )

    def run(self) -> Admitted:
        manifest = self._read(self._raw())
        if self.errors:
            raise InvalidManifest(self._problems())
        self._check_size(manifest.wire())
        warnings = [
            Problem(self.title, self._path(loc), text) for loc, text in self.warnings
        ]
        return Admitted(manifest, tuple(lines_of(warnings)))

    def without_unknown_fields(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        raw = self._raw()
        if self.errors:
            return self.written, ()
        try:
            self.info.model.model_validate(
                raw, extra="forbid", by_alias=True, by_name=False
            )
        except ValidationError as error:
            unknown = [
                one["loc"]
                for one in error.errors(include_url=False)
                if one["type"] == _UNKNOWN_FIELD
            ]
            if unknown:
                # Omit the namespace that was filled in for the check, because the
                # caller admits the rest.
                left = _without(
                    {**raw, "metadata": self.written.get("metadata", {})}, unknown
                )
                return left, tuple(dict.fromkeys(self._path(loc) for loc in unknown))
        return self.written, ()

    def check_part(self) -> None:
        raw = self._raw()
        self._check_size(raw)
        try:
            self.info.model.model_validate(
                raw, extra="forbid", by_alias=True, by_name=False
            )
        except ValidationError as error:
            found = [
                one
                for one in error.errors(include_url=False)
                if one["type"] == _UNKNOWN_FIELD or one["type"].endswith(_OTHER_TYPE)
            ]
            self.errors += describe(self.info.model, raw, found)
        if self.errors:
            raise InvalidManifest(self._problems())

    def _raw(self) -> dict[str, Any]:
        raw = {**self.written, "metadata": self.metadata}
        return {**raw, "spec": self._in_layout(raw["spec"])} if "spec" in raw else raw

    def _check_size(self, tree: dict[str, Any]) -> None:
        size = len(json.dumps(tree, ensure_ascii=False).encode(errors="surrogatepass"))
        if size > MANIFEST_BYTES_MAX:
            problem = (
                f"is {size / 1024:.0f} KiB of JSON; "
                f"at most {MANIFEST_BYTES_MAX // 1024} KiB are stored"
            )
            raise InvalidManifest([Problem(self.title, "", problem)])

    def _in_layout(self, spec: Any) -> Any:
        if self.info.model is ModelDeployment:
            self.layout = unflatten(spec)
            self.errors += self.layout.problems
            if self.layout.was_flat:
                self.warnings.append((("spec",), WARNING))
            return self.layout.spec
        if (
            self.info.kind == "ModelEndpoint"
            and isinstance(spec, dict)
            and "api" in spec
        ):
            self.warnings.append(
                (("spec", "api"), "ignored; endpoints have an OpenAI-style API")
            )
            return {key: value for key, value in spec.items() if key != "api"}
        return spec

    def _read(self, raw: dict[str, Any]) -> Manifest:
        model = self.info.model
        is_draft = False
        try:
            manifest: Any = model.model_validate(
                raw, extra="forbid", by_alias=True, by_name=False
            )
        except ValidationError as error:
            errors = error.errors(include_url=False)
            self.errors += describe(model, raw, errors)
            manifest = draft(model, raw, {one["loc"] for one in errors})
            is_draft = True
        for finding in self._findings(manifest, is_draft=is_draft):
            found = self.warnings if finding.is_warning else self.errors
            found.append((finding.loc, finding.text))
        result: Manifest = manifest
        return result

    def _findings(self, manifest: Manifest, *, is_draft: bool) -> Iterator[Finding]:
        for value, at in walk(manifest):
            context = RuleContext(at, manifest, self.checks)
            for rule in (duplicates, *RULES.get(type(value), ())):
                try:
                    yield from rule(value, context)
                except AttributeError:
                    if not is_draft:
                        raise
                    # The rule read an invalid value, which is reported already.

    def _path(self, loc: Loc) -> str:
        written = self.layout.as_written(loc)
        if written == loc:
            return show(self.info.model, self.written, loc)
        # In the flat layout the fields of the template are under `spec`, so the path is
        # resolved in the canonical tree and shortened.
        return show(self.info.model, self._canonical, loc).replace(
            "spec.template.spec", "spec", 1
        )

    @cached_property
    def _canonical(self) -> dict[str, Any]:
        return {**self.written, "spec": self.layout.spec}

    def _problems(self) -> list[Problem]:
        problems = (
            Problem(self.title, self._path(loc), text) for loc, text in self.errors
        )
        return list(dict.fromkeys(problems))


def _without(node: Any, locs: Sequence[Loc]) -> Any:
    """Return a copy of a tree without the fields at some locations."""
    if not locs:
        return node
    gone = {loc[0] for loc in locs if len(loc) == 1}
    below: dict[str | int, list[Loc]] = {}
    for part, *rest in locs:
        if rest:
            below.setdefault(part, []).append(tuple(rest))
    if isinstance(node, Mapping):
        return {
            key: _without(value, below.get(key, ()))
            for key, value in node.items()
            if key not in gone
        }
    return (
        [_without(value, below.get(index, ())) for index, value in enumerate(node)]
        if isinstance(node, list | tuple)
        else node
    )


def duplicates(value: ResourceModel, context: RuleContext) -> Iterator[Finding]:
    """Report list items with the same keys in a list that is treated as a map."""
    for wire, field in fields_of(type(value)).items():
        keys = field.map_keys
        items = value.__dict__.get(field.attribute) if keys and keys.unique else None
        if not keys or not isinstance(items, tuple):
            continue
        seen = set()
        for index, item in enumerate(items):
            identity = _identity(item, keys.keys)
            if identity is None:
                continue
            if identity in seen:
                text = f"duplicate {keys.noun}"
                if len(keys.keys) == 1:
                    key = keys.keys[0]
                    text = f"duplicate {key}; {keys.noun} {key}s must be unique"
                yield context.error(text, wire, index)
            seen.add(identity)


def _identity(item: Any, keys: tuple[str, ...]) -> tuple[str, ...] | None:
    if not isinstance(item, ResourceModel):
        return None
    layout = fields_of(type(item))
    values = [item.__dict__.get(layout[key].attribute) for key in keys]
    texts = tuple(value for value in values if isinstance(value, str))
    return texts if len(texts) == len(keys) else None


def admit_scale(namespace: str, name: str, replicas: object) -> int:
    """Check a replica count that is not part of a manifest.

    Raises:
        InvalidManifest: it contains the error of `spec.replicas`.

    """
    try:
        ModelDeploymentSpec.model_validate(
            {"replicas": replicas}, extra="forbid", by_alias=True, by_name=False
        )
    except ValidationError as error:
        of_replicas = [
            one
            for one in error.errors(include_url=False)
            if one["loc"] == ("replicas",)
        ]
        if of_replicas:
            ((_, text), *_rest) = describe(
                ModelDeploymentSpec, {"replicas": replicas}, of_replicas
            )
            who = title("ModelDeployment", namespace, name)
            raise InvalidManifest.of(who, "spec.replicas", text) from None
    if not isinstance(replicas, int):  # the model above accepted it as an integer
        raise TypeError(replicas)
    return replicas
