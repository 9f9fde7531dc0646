"""Public model names of LoRA adapters, which the endpoint picker rewrites.

The picker replaces a public name in a request by the name of the adapter.
"""

from activities.render.engines.context import Context
from activities.render.engines.served_names import served_names
from activities.render.engines.spec import EngineSpec
from activities.render.inputs.findings import Findings, ServingStackMissing
from activities.render.objects import components, inventory_keys
from activities.render.objects.manifest import RenderedObject, labelled_item
from api_types.pins import apiversions
from api_types.pins.features import MODEL_NAMES
from api_types.validation.serving import model_name_problems


def renames(engines: tuple[EngineSpec, ...]) -> dict[str, list[str]]:
    """Return the public names of each adapter that has any."""
    found: dict[str, list[str]] = {}
    adapters = [adapter for engine in engines for adapter in engine.adapters]
    for adapter in adapters:
        if adapter.model_names:
            names = found.setdefault(adapter.name, [])
            names += [name for name in adapter.model_names if name not in names]
    return found


def check_names(engines: tuple[EngineSpec, ...], findings: Findings) -> None:
    """Report names that conflict with each other or with names of the model itself."""
    adapters = [(engine, adapter) for engine in engines for adapter in engine.adapters]
    for problem in model_name_problems(
        [(adapter.name, adapter.model_names) for _, adapter in adapters]
    ):
        engine, adapter = adapters[problem.adapter]
        findings.problem(
            f"engine {engine.name}, adapter {adapter.name}, modelNames", problem.text
        )
    # Another check rejects an engine without a serving member.
    served: set[str] = set()
    for engine in engines:
        if any(member.serves for member in engine.members):
            served.update(served_names(engine.server))
    for engine, adapter in adapters:
        for name in (adapter.name, *adapter.model_names):
            if name in served:
                findings.problem(
                    f"engine {engine.name}, adapter {adapter.name}",
                    f'"{name}" is the name of the model itself, whose requests would go '
                    "to the adapter; choose another name",
                )


def check_cluster(context: Context) -> None:
    """Raise ServingStackMissing if the cluster cannot rewrite model names in use."""
    if renames(context.spec.engines) and context.cluster.lacks(MODEL_NAMES):
        raise ServingStackMissing(context.subject, (context.lacking(MODEL_NAMES),))


def rewrites(context: Context) -> list[RenderedObject]:
    """Return the one object with all model names, or [] if there are none."""
    found = renames(context.spec.engines)
    if not found:
        return []
    manifest = {
        "apiVersion": _version(context),
        "kind": "InferenceModelRewrite",
        "metadata": context.metadata(context.workload),
        "spec": {
            # The picker reads only rewrites with the group of its own pool; the default
            # group differs.
            "poolRef": {
                "group": apiversions.INFERENCE_GROUP,
                "kind": "InferencePool",
                "name": context.pool,
            },
            "rules": [
                {
                    "matches": [
                        {"model": {"type": "Exact", "value": name}} for name in names
                    ],
                    "targets": [{"modelRewrite": adapter}],
                }
                for adapter, names in found.items()
            ],
        },
    }
    return [
        labelled_item(
            context.owner, inventory_keys.MODEL_REWRITE, components.ROUTING, manifest
        )
    ]


def _version(context: Context) -> str:
    return next(
        (
            version
            for version in apiversions.MODEL_REWRITES
            if version in context.facts.apis
        ),
        "",
    )
