"""The intended differences from the objects of the baseline, each with its reason.

tests/golden/README.md describes the baseline.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from api_types import labels

# Hashes cover the content of their object, so they differ whenever another field does.
_HASHES = (labels.RENDER_HASH, labels.TEMPLATE_HASH)


@dataclass(frozen=True)
class Intended:
    """A difference by object, `<set>/<kind>/<name>`, and path.

    Both may contain `*`. List entries appear in paths by their name.
    """

    manifest: str
    path: str
    reason: str

    def covers(self, manifest: str, path: str) -> bool:
        """Return whether this is the difference."""
        return fnmatchcase(manifest, self.manifest) and fnmatchcase(path, self.path)


# The name of an engine's workload ends with eight hexadecimal digits. The name of a
# picker does not.
_WORKERS = "leaderWorkerTemplate.workerTemplate"
_ENGINE_TEMPLATES = (
    ("Deployment", "template"),
    ("LeaderWorkerSet", "leaderWorkerTemplate.leaderTemplate"),
    ("LeaderWorkerSet", _WORKERS),
)

INTENDED = (
    Intended(
        "*/HTTPRoute/*-by-host",
        "(added)",
        "an Envoy that tries several replicas for a request sends the host of each",
    ),
    Intended(
        "*/LeaderWorkerSet/*-????????",
        f"spec.{_WORKERS}.spec.initContainers",
        "followers wait for their leader, so that an early start does not end the group",
    ),
    Intended(
        "*/ConfigMap/*-epp",
        "data.epp-config.yaml",
        "every path has a parser, and load outweighs a cached prefix",
    ),
    Intended(
        "*/Deployment/*-epp",
        "spec.template.metadata.annotations.modelplane.ai/epp-config-checksum",
        "the configuration of the picker has changed",
    ),
    *(
        Intended(
            "*/Deployment/*-epp",
            f"spec.{path}",
            "a new picker starts before an old one stops, and the old one ends its requests",
        )
        for path in (
            "minReadySeconds",
            "strategy.*",
            "template.spec.containers.epp.lifecycle",
            "template.spec.terminationGracePeriodSeconds",
        )
    ),
    *(
        Intended(
            manifest,
            path,
            "the Service of a picker is headless, which a stored Service cannot become",
        )
        for manifest, path in (
            ("*/Service/*-epp", "(not rendered)"),
            ("*/Service/*-epp-grpc", "(added)"),
            ("*/InferencePool/*", "spec.endpointPickerRef.name"),
            ("*/DestinationRule/*-epp", "spec.host"),
        )
    ),
    Intended(
        "*/HTTPRoute/*",
        "spec.rules",
        "paths that administer an engine are blocked, and plain Services get no headers "
        "that steer requests",
    ),
    *(
        Intended(
            f"*/{kind}/*-????????",
            f"spec.{template}.spec.enableServiceLinks",
            (
                "a Service of the namespace that is called `vllm` would set "
                "VLLM_PORT, with which vLLM does not start"
            ),
        )
        for kind, template in _ENGINE_TEMPLATES
    ),
    *(
        Intended(
            f"*/{kind}/*-????????",
            f"spec.{template}.metadata.labels.llm-d.ai/engine-type",
            "the endpoint picker chooses the names of the metrics by it",
        )
        for kind, template in _ENGINE_TEMPLATES
        if template != _WORKERS
    ),
    *(
        Intended(
            f"*/{kind}/*",
            f"metadata.annotations.modelplane.ai/{name}",
            (
                "what pods are made from, and by which version: they stay until a "
                "rollout where only the latter changes"
            ),
        )
        for kind in ("Deployment", "LeaderWorkerSet")
        for name in ("pods-source", "renderer")
    ),
    Intended(
        "examples/LeaderWorkerSet/*",
        "spec.leaderWorkerTemplate.leaderTemplate.spec.containers.engine.args",
        "the examples of SGLang serve metrics, by which the endpoint picker knows their load",
    ),
    Intended(
        "cache-huggingface/Job/*",
        "spec.template.spec.containers.hydrate.command",
        (
            "the script: the hub's client is installed from files with known hashes, and "
            "without the token; SIGTERM ends it, and it removes what a killed attempt left"
        ),
    ),
    Intended(
        "cache-huggingface/Job/*",
        "spec.template.spec.containers.hydrate.env.MODELPLANE_CLIENT_*",
        "the version of the hub's client is a list of requirements with hashes",
    ),
    Intended(
        "cache-oci/Job/*",
        "spec.template.spec.containers.hydrate.command",
        "the script: SIGTERM ends it, and what the file system denies is no refused credential",
    ),
)


def differences(old: Any, new: Any) -> list[str]:
    """Return the paths at which two objects differ.

    Hashes count only if nothing else does.
    """
    found = list(_differences(old, new, ""))
    return [path for path in found if not path.endswith(_HASHES)] or found


def _differences(old: Any, new: Any, path: str) -> Iterator[str]:
    before, after = _by_name(old), _by_name(new)
    if before is None or after is None:
        if old != new:
            yield path
        return
    if [name for name in before if name in after] != [
        name for name in after if name in before
    ] and isinstance(old, list):
        yield path  # The order of a list has a meaning.
    for name in {**before, **after}:
        inner = f"{path}.{name}" if path else name
        if name in before and name in after:
            yield from _differences(before[name], after[name], inner)
        else:
            yield inner


def _by_name(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    if (
        isinstance(value, list)
        and value
        and all(isinstance(entry, dict) and "name" in entry for entry in value)
    ):
        return {entry["name"]: entry for entry in value}
    return None
