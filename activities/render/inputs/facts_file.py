"""Cluster facts from a file, for rendering without a cluster.

```yaml
  clusters:
    eu-1: {kubernetesVersion: "1.35", routing: pool, cacheClaims: {ml-team/qwen: my-claim}}
```

Facts that the file leaves out come from the cluster's own declaration, or describe a
provisioned cluster with the whole stack.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from activities.render.inputs.facts import ClusterInput, InvalidFacts
from activities.render.inputs.findings import Findings, NotRenderable
from activities.render.inputs.reader import Reader

_TEXTS = {
    "kubernetesVersion": "kubernetes_version",
    "draVersion": "dra_version",
    "routing": "routing",
    "schedulerType": "scheduler_type",
    "meshProvider": "mesh_provider",
    "storageClassName": "storage_class_name",
    "gatewayAddress": "gateway_address",
}
_FIELDS = (*_TEXTS, "apis", "cacheClaims", "drivers")


@dataclass(frozen=True)
class GivenFacts:
    """The facts that a file gives about one cluster.

    `fields` are fields of `ClusterFacts`, and `cache_claims` the claims of its caches.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    cache_claims: Mapping[str, str] = field(default_factory=dict)

    def over(
        self, name: str, declared: Mapping[str, Any] | None = None
    ) -> ClusterInput:
        """Return the cluster with these facts over the declared ones.

        Raises InvalidFacts.
        """
        return ClusterInput.assumed(
            name, self.cache_claims, **{**(declared or {}), **self.fields}
        )


class InvalidFactsFile(NotRenderable):
    """A facts file with invalid values. `problems` contains all of them."""

    reason = "InvalidFacts"


def read_facts(document: Any, source: str) -> dict[str, GivenFacts]:
    """Return the facts of every cluster of a parsed file, by name.

    `source` names the file in errors. Raises InvalidFactsFile.
    """
    findings = Findings()
    file = Reader(document, "", findings)
    _check_names(file, ("clusters",))
    given: Mapping[Any, Any] = file.object("clusters").fields
    for name in given:
        if not isinstance(name, str) or not name:
            findings.problem(
                "clusters",
                f"{name!r} must be the name of a cluster, as a string: "
                "write a number in quotes",
            )
    clusters = {
        name: _cluster(name, value, findings)
        for name, value in given.items()
        if isinstance(name, str) and name
    }
    if findings.problems:
        raise InvalidFactsFile(source, tuple(findings.problems))
    return clusters


def _cluster(name: str, value: Any, findings: Findings) -> GivenFacts:
    reader = Reader({} if value is None else value, f"clusters.{name}", findings)
    _check_names(reader, _FIELDS)
    given: dict[str, Any] = {}
    for key, name_of_fact in _TEXTS.items():
        # A value of another type is reported once, and is then ignored.
        text = reader.text(key)
        if isinstance(reader.fields.get(key), str):
            given[name_of_fact] = text
    if reader.has("apis"):
        given["apis"] = reader.texts("apis")
    claims = _names(reader, "cacheClaims", "a volume claim", findings)
    if reader.has("drivers"):
        given["drivers"] = _names(reader, "drivers", "a driver", findings)
    facts = GivenFacts(given, claims)
    try:
        facts.over(name)
    except InvalidFacts as error:
        for problem in error.problems:
            findings.problem(reader.where, problem)
    return facts


def _names(
    reader: Reader, key: str, meaning: str, findings: Findings
) -> dict[str, str]:
    """Return a mapping of names to names, without invalid values, which are reported."""
    found: Mapping[str, Any] = reader.object(key).fields
    for name, value in found.items():
        if not isinstance(value, str):
            findings.problem(
                reader.where,
                f"{key}.{name} must be the name of {meaning}, is {value!r}",
            )
    return {str(name): value for name, value in found.items() if isinstance(value, str)}


def _check_names(reader: Reader, known: tuple[str, ...]) -> None:
    for name in reader.fields:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            reader.findings.problem(
                reader.where,
                f"{name} is unknown{f': did you mean {near[0]}?' if near else ''}",
            )
