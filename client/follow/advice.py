"""The next step for a condition reason: one line for each reason on which a user, not the control plane, must act."""

from client.refs.targets import Target
from client.refs.tree import Tree, conditions

_ADVICE = {
    "InvalidInput": "fix the manifest and apply it again: `modelplane validate -f FILE` shows every error",
    "InvalidNodeSelector": "fix the CEL expression; `modelplane validate -f FILE` shows where it fails",
    "NoClusters": "no cluster has the labels that the selectors ask for: compare with `modelplane get ic --show-labels`",
    "InsufficientCapacity": "free or add nodes, or ask for less: `modelplane get icl -o yaml` shows what a node of each class has",
    "WaitingForClasses": "apply the missing InferenceClass; `modelplane get icl` lists those that exist",
    "InvalidNodePool": "give the pool a class that can be provisioned on this source",
    "CredentialsInvalid": "put a working kubeconfig into the Secret that the cluster names, with `modelplane apply -f`",
    "PermissionDenied": "grant the missing right to the user of the kubeconfig",
    "Unreachable": "check that the worker can reach the API server that the kubeconfig names",
    "ClusterUnreachable": "see the cluster: `modelplane get ic -o wide`",
    "UnsupportedCluster": "the cluster needs Kubernetes with resource.k8s.io (DRA), or classes that claim by device plugin",
    "ProviderNotSupported": "this source cannot be provisioned yet; create the cluster yourself and use source: Existing",
    "ModelCacheNotFound": "apply the ModelCache that modelCacheRef names, in the same namespace",
    "AuthSecretMissing": "apply the Secret that authSecret names, in the same namespace",
    "Failed": "fix what the message says, then `modelplane retry {command}`",
    "WaitingForCache": "see its progress: `modelplane get mc -n {namespace}`, then describe it",
    "SecretMissing": "apply the Secret that the message names",
    "InUse": "delete or move what still uses it; the message names it",
    "InvalidSpec": "change the deployment's template as the message says and apply it again",
    "NameConflict": "an object that Modelplane does not own has this name on the cluster; remove or rename it",
    "ModelStarting": "`modelplane get mr -n {namespace} -o wide` shows each replica and what it waits for",
}


def advice(target: Target, tree: Tree) -> str:
    """Give the next step for an object that is not Ready; empty if none of its reasons needs one."""
    reasons = [str(row.get("reason")) for row in conditions(tree) if row.get("status") != "True"]
    text = next((_ADVICE[reason] for reason in reasons if reason in _ADVICE), "")
    return text.format(command=target.command, namespace=target.namespace)
