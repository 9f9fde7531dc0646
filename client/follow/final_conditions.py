"""What conditions say at the end of a wait: failures that do not pass by themselves, and what is missing of an object that is Ready."""

from client.refs.targets import Target
from client.refs.tree import Tree, at_path, condition

# Failures that follow from the spec alone, by kind and type of the condition: waiting longer helps none of them.
FINAL = {
    "InferenceCluster": {"ClusterReady": ("ProviderNotSupported",)},
    "ModelDeployment": {"ReplicasScheduled": ("InvalidNodeSelector",)},
    "ModelEndpoint": {"RoutingReady": ("InvalidURL",)},
}
# Of what a spec may ask for and Ready does not wait for.
OPTIONAL = {"ModelService": ("RetriesReady", "TimeoutsReady")}


def final_failure(target: Target, tree: Tree, wanted_generation: int) -> str:
    """Give why an object cannot become Ready with a generation of its spec, or a later one; empty if it still may."""
    observed = int(at_path(tree, ".status.observedGeneration") or 0)
    for condition_type, reasons in FINAL.get(target.kind.kind, {}).items():
        found = condition(tree, condition_type)
        # What is said of an earlier spec may be what the new one corrects.
        of = min(observed, int(found.get("observedGeneration") or observed))
        if found.get("status") == "False" and found.get("reason") in reasons and of >= wanted_generation:
            return said(found)
    return ""


def missing_features(target: Target, tree: Tree) -> list[str]:
    """Give what the spec of an object asks for and does not get, one line each, however Ready the object is."""
    found = [condition(tree, condition_type) for condition_type in OPTIONAL.get(target.kind.kind, ())]
    return [f"{target.title}: {said(each)}" for each in found if each.get("status") == "False"]


def said(row: Tree) -> str:
    """Give a condition in one line: its type, reason and message; empty if the object does not state it."""
    if not row:
        return ""
    message = f" ({row['message']})" if row.get("message") else ""
    return f"{row.get('type')}: {row.get('reason')}{message}"
