"""The next step for a condition's reason, if the user has to act.

The table is by kind, because kinds use one reason for different causes.
"""

import re

from api_types import labels
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, at_path, conditions

# The credential in the message of a cache: the token's Secret, or an object of
# `spec.hydration`.
_CREDENTIAL = re.compile(r"\b(?:Secret|ConfigMap) [^\s/]+/[^\s/]+")
# How the control plane begins `nextStep` of a problem that it solves itself.
_NO_STEP = "none"
# Every kind sets this reason when it refuses a spec.
OF_EVERY_KIND = {
    "InvalidInput": (
        "fix the manifest and apply it again: `modelplane validate -f FILE` shows "
        "every error"
    )
}

ADVICE = {
    "InferenceCluster": {
        "WaitingForClasses": (
            "apply the missing InferenceClass; `modelplane get icl` lists those that "
            "exist"
        ),
        "InvalidNodePool": (
            "correct the pool, or give its class a block for this cloud, as the "
            "message says, and apply it again"
        ),
        "CredentialsInvalid": (
            "put a working kubeconfig into the Secret that the cluster names, with "
            "`modelplane apply -f`"
        ),
        "WaitingForWorker": (
            "start a worker for the task queue in the message (setting queues.serve), "
            "where it reaches the cluster"
        ),
        "Unreachable": "check that the worker can reach the API server that the kubeconfig names",
        "UnsupportedCluster": (
            "upgrade the cluster, or change the classes of its pools as the message "
            "says"
        ),
        "ReleaseConflict": (
            "remove the objects in the message, or annotate the cluster "
            f"{labels.STACK}=external and install the stack yourself"
        ),
        "GatewayAddressPending": (
            "the cluster needs a load balancer, from its cloud or MetalLB; the "
            "message quotes its Service"
        ),
        "StackUnavailable": "see the pods of the component in the message on the cluster",
        "StackPlanned": (
            "to install the stack, apply the cluster with the annotation "
            f"{labels.STACK}=managed"
        ),
        "Missing": (
            "follow the message to get the missing features; deployments without them "
            "are not affected"
        ),
        "FinalizerStuck": (
            "see why the object in the message is not deleted; to skip this step: "
            "`modelplane delete {command} --force`"
        ),
        "ProviderNotSupported": (
            "this source cannot be provisioned yet; create the cluster yourself and "
            "use source: Existing"
        ),
    },
    "ServingStack": {
        "StackPlanned": (
            "to install the stack, apply the cluster with the annotation "
            f"{labels.STACK}=managed"
        ),
        "WaitingForCluster": "see the cluster: `modelplane describe ic/{name}`",
        "ReleaseConflict": (
            "remove the objects in the message, or annotate the cluster "
            f"{labels.STACK}=external and install the stack yourself"
        ),
        "GatewayAddressPending": (
            "the cluster needs a load balancer, from its cloud or MetalLB; the "
            "message quotes its Service"
        ),
        "StackUnavailable": "see the pods of the component in the message on the cluster",
    },
    "ModelCache": {
        "NoClusters": "clusterSelector must match a connected cluster that has a storage class for "
        "caches (spec.cluster.existing.cache.storageClassName): compare with "
        "`modelplane get ic --show-labels`",
        "Unresolved": (
            "let the workers reach the source (HTTPS_PROXY, "
            "outbound.privateAddresses), or correct it, then `modelplane retry {command}`"
        ),
        "AuthSecretMissing": "apply {credential}, with the key that the message names",
        "Failed": "fix the cause in the message, then `modelplane retry {command}`",
    },
    "ModelDeployment": {
        "InvalidNodeSelector": (
            "fix the CEL expression; `modelplane validate -f FILE` shows where it fails"
        ),
        "NoClusters": (
            "no cluster has the labels of the selectors: compare with `modelplane "
            "get ic --show-labels`"
        ),
        "InsufficientCapacity": (
            "free or add nodes, or request less: `modelplane get icl -o yaml` shows "
            "the nodes of each class"
        ),
        "ModelCacheNotFound": "apply the ModelCache of modelCacheRef, in the same namespace",
        "SeveralAutoscalers": (
            "keep one of the autoscalers in the message and remove the others: "
            "docs/how-to/autoscaling.md"
        ),
        "ModelStarting": (
            "`modelplane get mr -n {namespace} -o wide` shows each replica and its "
            "reason"
        ),
    },
    "ModelEndpoint": {
        "WaitingForBackend": (
            "`modelplane get ig` shows the gateway and its reason; apply an "
            "InferenceGateway if there is none"
        ),
    },
    "ModelService": {
        "MiddlewareUnavailable": (
            "change the control cluster as the message says, then `modelplane retry "
            "{command}`"
        ),
        "SupportUnknown": (
            "change the control cluster as the message says; the route then follows "
            "by itself"
        ),
        "EndpointsUnsupported": (
            "select replicas of deployments only, or use an InferenceGateway with "
            "backend Traefik"
        ),
        "TimeoutsUnsupported": "set timeouts in the clients, or use a gateway that supports them",
        "NoEndpoints": "`modelplane describe {command}` names deployments that have no replica; "
        "else compare the selectors with the labels of `modelplane get mr,me -n "
        "{namespace} --show-labels`",
        "WaitingForGateway": (
            "`modelplane get ig` shows the gateway and its reason; apply an "
            "InferenceGateway if there is none"
        ),
        "ClusterUnreachable": (
            "`modelplane get ig` shows why the control cluster does not answer; the "
            "deletion continues by itself when it answers again"
        ),
    },
    "ModelReplica": {
        "InvalidSpec": "change the deployment's template as the message says and apply it again",
        "DRAUnavailable": (
            "the cluster needs Kubernetes with resource.k8s.io (DRA), or classes "
            "that claim by device plugin"
        ),
        "ServingStackMissing": (
            "install on the cluster the component that serves the kind in the "
            "message; the replica is then applied"
        ),
        "SecretMissing": "apply the Secret or ConfigMap that the message names",
        "NameConflict": (
            "an object that Modelplane does not own has this name on the cluster; "
            "remove or rename it"
        ),
        "RoutingUnsupported": (
            f"change the cluster's annotation {labels.ROUTING}, or install the "
            "component in the message on the cluster"
        ),
        "ImageVolumesUnsupported": (
            "upgrade the cluster, or remove spec.volume.image of the ModelCache that "
            "the message names"
        ),
        "TopologyUnsupported": (
            "change the engine's topology as the message says, or select clusters "
            "whose scheduler can place it"
        ),
        "WaitingForWorker": (
            "see which task queue has no worker: `modelplane get ic -o wide`, then "
            "describe the cluster"
        ),
        "ClusterUnreachable": "see the cluster: `modelplane get ic -o wide`",
        "WaitingForCluster": (
            "see the cluster: `modelplane get ic -o wide`; apply it again if it is "
            "not there"
        ),
        "UnreadableArgument": (
            "give the worker that serves the cluster the key that the message names "
            "(setting encryption.keys)"
        ),
        "WaitingForCache": "see its progress: `modelplane get mc -n {namespace}`, then describe it",
    },
}


def advice(target: Target, tree: Tree) -> str:
    """Return the next step for an object that is not Ready.

    Return an empty string if the control plane needs no help.
    """
    if step := _cloud_step(tree):
        return step
    known = OF_EVERY_KIND | ADVICE.get(target.kind.kind, {})
    unmet = [
        row
        for row in conditions(tree)
        if row.get("status") != "True" and str(row.get("reason")) in known
    ]
    if not unmet:
        return ""
    return known[str(unmet[0]["reason"])].format(
        command=target.command,
        name=target.name,
        namespace=target.namespace,
        credential=_credential(str(unmet[0].get("message") or "")),
    )


def rollout_advice(target: Target, tree: Tree) -> str:
    """Return the next step for a deployment with pending changes, else an empty string."""
    if not at_path(tree, ".status.rollout.pending"):
        return ""
    return (
        f"`modelplane rollout restart {target.command}` replaces the pods with "
        "pending changes, within its budget; the setting workloads.adoptRenderer: "
        "Rolling does so automatically"
    )


def _cloud_step(tree: Tree) -> str:
    """Return the step of the first cloud object that waits for a person, else "".

    It precedes the step for a condition: nothing else of a cluster becomes Ready before
    the objects in its cloud.
    """
    for row in at_path(tree, ".status.cloudObjects") or []:
        step = str(row.get("nextStep") or "")
        if step and not step.startswith(_NO_STEP):
            return f"{row['object']}: {step}"
    return ""


def _credential(message: str) -> str:
    found = _CREDENTIAL.search(message)
    return found[0] if found else "the Secret or ConfigMap that the message names"
