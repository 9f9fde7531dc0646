"""Public model names of LoRA adapters: the endpoint picker puts the adapter's own name in their place."""

from activities.render.engines.context import Context
from activities.render.engines.served_names import served_names
from activities.render.engines.spec import Engine
from activities.render.inputs.findings import Findings, ServingStackMissing
from activities.render.objects import components, inventory_keys
from activities.render.objects.manifest import Item, labelled_item
from api_types.pins import apiversions
from api_types.validation.serving import model_name_problems


def renames(engines: tuple[Engine, ...]) -> dict[str, list[str]]:
    """Give the public names of each adapter that has any."""
    found: dict[str, list[str]] = {}
    for adapter in (adapter for engine in engines for adapter in engine.adapters if adapter.model_names):
        names = found.setdefault(adapter.name, [])
        names += [name for name in adapter.model_names if name not in names]
    return found


def check_names(engines: tuple[Engine, ...], findings: Findings) -> None:
    """Refuse names that contradict each other, and those of the model itself."""
    adapters = [(engine, adapter) for engine in engines for adapter in engine.adapters]
    for problem in model_name_problems([(adapter.name, adapter.model_names) for _, adapter in adapters]):
        engine, adapter = adapters[problem.adapter]
        findings.problem(f"engine {engine.name}, adapter {adapter.name}, modelNames", problem.text)
    # An engine without a serving member is refused elsewhere.
    served = {name for engine in engines if any(member.serves for member in engine.members) for name in served_names(engine.server)}
    for engine, adapter in adapters:
        for name in (each for each in (adapter.name, *adapter.model_names) if each in served):
            text = f'"{name}" is the name of the model itself, whose requests would go to the adapter; choose another name'
            findings.problem(f"engine {engine.name}, adapter {adapter.name}", text)


def check_cluster(context: Context) -> None:
    """Raise ServingStackMissing where the cluster does not serve what names are replaced by."""
    if renames(context.spec.engines) and not _version(context):
        problem = (
            f"cluster {context.cluster.name} does not serve InferenceModelRewrite ({' or '.join(apiversions.MODEL_REWRITES)}), which "
            f"modelNames of adapters need: install the definitions of the llm-d router there, or remove the field"
        )
        raise ServingStackMissing(f"ModelReplica {context.replica.namespace}/{context.replica.name}", (problem,))


def rewrites(context: Context) -> list[Item]:
    """Give the one object with all names; none without a name."""
    found = renames(context.spec.engines)
    if not found:
        return []
    manifest = {
        "apiVersion": _version(context),
        "kind": "InferenceModelRewrite",
        "metadata": context.metadata(context.workload),
        "spec": {
            # The picker takes only those whose group is that of its own pool; the default is another one.
            "poolRef": {"group": apiversions.INFERENCE_GROUP, "kind": "InferencePool", "name": context.pool},
            "rules": [
                {
                    "matches": [{"model": {"type": "Exact", "value": name}} for name in names],
                    "targets": [{"modelRewrite": adapter}],
                }
                for adapter, names in found.items()
            ],
        },
    }
    return [labelled_item(context.owner, inventory_keys.MODEL_REWRITE, components.ROUTING, manifest)]


def _version(context: Context) -> str:
    return next((version for version in apiversions.MODEL_REWRITES if version in context.facts.apis), "")
