"""The next step for a condition reason: one line for each reason on which a user, not the control plane, must act.

By kind, because kinds give one reason for different causes.
"""

import re

from api_types import labels
from client.refs.targets import Target
from client.refs.tree import Tree, at_path, conditions

# How the control plane names what a cache waits for: its token, or what `spec.hydration` names.
_CREDENTIAL = re.compile(r"\b(?:Secret|ConfigMap) [^\s/]+/[^\s/]+")
# Set by every kind when it refuses a spec.
_OF_EVERY_KIND = {"InvalidInput": "fix the manifest and apply it again: `modelplane validate -f FILE` shows every error"}

ADVICE = {
    "InferenceCluster": {
        "WaitingForClasses": "apply the missing InferenceClass; `modelplane get icl` lists those that exist",
        "InvalidNodePool": "correct the pool, or give its class a block for this cloud, as the message says, and apply it again",
        "CredentialsInvalid": "put a working kubeconfig into the Secret that the cluster names, with `modelplane apply -f`",
        "WaitingForWorker": "start a worker that serves the task queue that the message names (setting queues.serve), where it reaches the "
        "cluster",
        "Unreachable": "check that the worker can reach the API server that the kubeconfig names",
        "UnsupportedCluster": "upgrade the cluster, or change the classes of its pools as the message says",
        "ReleaseConflict": f"remove what the message names, or annotate the cluster {labels.STACK}=external and install the stack yourself",
        "GatewayAddressPending": "the cluster needs a load balancer, of its cloud or MetalLB: the message has what its Service says",
        "StackUnavailable": "see the pods of what the message names, on the cluster",
        "FinalizerStuck": "see why what the message names is not deleted; to give this step up: `modelplane delete {command} --force`",
        "ProviderNotSupported": "this source cannot be provisioned yet; create the cluster yourself and use source: Existing",
    },
    "ServingStack": {
        "WaitingForCluster": "see the cluster: `modelplane describe ic/{name}`",
        "ReleaseConflict": f"remove what the message names, or annotate the cluster {labels.STACK}=external and install the stack yourself",
        "GatewayAddressPending": "the cluster needs a load balancer, of its cloud or MetalLB: the message has what its Service says",
        "StackUnavailable": "see the pods of what the message names, on the cluster",
    },
    "ModelCache": {
        "NoClusters": "clusterSelector must match a connected cluster that has a storage class for caches "
        "(spec.cluster.existing.cache.storageClassName): compare with `modelplane get ic --show-labels`",
        "AuthSecretMissing": "apply {credential}, with the key that the message names",
        "Failed": "fix what the message says, then `modelplane retry {command}`",
    },
    "ModelDeployment": {
        "InvalidNodeSelector": "fix the CEL expression; `modelplane validate -f FILE` shows where it fails",
        "NoClusters": "no cluster has the labels that the selectors ask for: compare with `modelplane get ic --show-labels`",
        "InsufficientCapacity": "free or add nodes, or ask for less: `modelplane get icl -o yaml` shows what a node of each class has",
        "ModelCacheNotFound": "apply the ModelCache that modelCacheRef names, in the same namespace",
        "SeveralAutoscalers": "let one of those that the message names set the count, and end the others: docs/scaling.md",
        "ModelStarting": "`modelplane get mr -n {namespace} -o wide` shows each replica and what it waits for",
    },
    "ModelEndpoint": {
        "WaitingForBackend": "see what the gateway waits for: `modelplane describe ig/default`",
    },
    "ModelService": {
        "MiddlewareUnavailable": "do on the control cluster what the message says, then `modelplane retry {command}`",
        "SupportUnknown": "do on the control cluster what the message says; the route then follows by itself",
        "TimeoutsUnsupported": "set timeouts in the clients; a gateway that supports them later is followed by itself",
        "NoEndpoints": "`modelplane describe {command}` names deployments that have no replica; else compare the selectors with the labels "
        "of `modelplane get mr,me -n {namespace} --show-labels`",
        "WaitingForGateway": "see what the gateway waits for: `modelplane describe ig/default`",
    },
    "ModelReplica": {
        "InvalidSpec": "change the deployment's template as the message says and apply it again",
        "DRAUnavailable": "the cluster needs Kubernetes with resource.k8s.io (DRA), or classes that claim by device plugin",
        "ServingStackMissing": "install on the cluster what serves the kind that the message names; the replica is then applied by itself",
        "SecretMissing": "apply the Secret or ConfigMap that the message names",
        "NameConflict": "an object that Modelplane does not own has this name on the cluster; remove or rename it",
        "RoutingUnsupported": f"change the cluster's annotation {labels.ROUTING}, or install on the cluster what the message names",
        "ImageVolumesUnsupported": "upgrade the cluster, or remove spec.volume.image of the ModelCache that the message names",
        "TopologyUnsupported": "change the engine's topology as the message says, or select clusters whose scheduler can place it",
        "WaitingForWorker": "see which task queue has no worker: `modelplane get ic -o wide`, then describe the cluster",
        "ClusterUnreachable": "see the cluster: `modelplane get ic -o wide`",
        "WaitingForCluster": "see the cluster: `modelplane get ic -o wide`; apply it again if it is not there",
        "UnreadableArgument": "give the worker that serves the cluster the key that the message names (setting encryption.keys)",
        "WaitingForCache": "see its progress: `modelplane get mc -n {namespace}`, then describe it",
    },
}


def advice(target: Target, tree: Tree) -> str:
    """Give the next step for an object that is not Ready; empty if none of its reasons needs one."""
    known = _OF_EVERY_KIND | ADVICE.get(target.kind.kind, {})
    unmet = [row for row in conditions(tree) if row.get("status") != "True" and str(row.get("reason")) in known]
    if not unmet:
        return ""
    return known[str(unmet[0]["reason"])].format(
        command=target.command, name=target.name, namespace=target.namespace, credential=_credential(str(unmet[0].get("message") or ""))
    )


def rollout_advice(target: Target, tree: Tree) -> str:
    """Give the next step for a deployment with changes that wait for a rollout; empty if there are none."""
    if not at_path(tree, ".status.rollout.pending"):
        return ""
    return (
        f"`modelplane rollout restart {target.command}` replaces the pods of what is pending, within its budget; "
        "the setting workloads.adoptRenderer: Rolling does so by itself"
    )


def _credential(message: str) -> str:
    found = _CREDENTIAL.search(message)
    return found[0] if found else "the Secret or ConfigMap that the message names"
