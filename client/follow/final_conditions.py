"""Conditions at the end of a wait: permanent failures, and missing optional features."""

from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, at_path, condition

# States that follow from the manifest alone, by kind and type of the condition. Waiting
# does not end them.
FINAL = {
    "InferenceCluster": {
        "ClusterReady": ("ProviderNotSupported",),
        "BackendReady": ("StackPlanned",),
    },
    "ModelDeployment": {"ReplicasScheduled": ("InvalidNodeSelector",)},
    "ModelEndpoint": {"RoutingReady": ("InvalidURL",)},
}
# Conditions about optional features, for which Ready does not wait.
OPTIONAL = {
    "InferenceCluster": ("FeaturesAvailable",),
    "ModelService": ("RetriesReady", "TimeoutsReady"),
}


def final_failure(target: Target, tree: Tree, wanted_generation: int) -> str:
    """Return why an object cannot become Ready with a spec of this generation or later.

    Return an empty string if it still can.
    """
    observed = int(at_path(tree, ".status.observedGeneration") or 0)
    for condition_type, reasons in FINAL.get(target.kind.kind, {}).items():
        found = condition(tree, condition_type)
        # A condition about an earlier spec may be obsolete.
        of = min(observed, int(found.get("observedGeneration") or observed))
        if (
            found.get("status") == "False"
            and found.get("reason") in reasons
            and of >= wanted_generation
        ):
            return said(found)
    return ""


def missing_features(target: Target, tree: Tree) -> list[str]:
    """Return one line for each feature that the spec of an object requests and lacks."""
    found = [
        condition(tree, condition_type)
        for condition_type in OPTIONAL.get(target.kind.kind, ())
    ]
    return [
        f"{target.title}: {said(each)}"
        for each in found
        if each.get("status") == "False"
    ]


def said(row: Tree) -> str:
    """Return a condition in one line: type, reason and message. Return "" without one."""
    if not row:
        return ""
    message = f" ({row['message']})" if row.get("message") else ""
    return f"{row.get('type')}: {row.get('reason')}{message}"
