"""Orders of a replica's workflow for its activities."""

from typing import Any

from api_types.messages.cluster_work import ApplyReplica, ClusterFacts, Connection


def an_apply(
    name: str,
    *engines: dict[str, Any],
    namespace: str = "ml",
    cluster: str = "eu",
    **fields: Any,
) -> ApplyReplica:
    """Return the order to apply a replica with these engines.

    `fields` are fields of the order.
    """
    given: dict[str, Any] = {
        "connection": Connection(
            cluster=cluster,
            namespace="modelplane-system",
            name=cluster,
            key="kubeconfig",
        ),
        "facts": ClusterFacts(kubernetes_version="1.35", dra_version="v1"),
        "uid": f"uid-{name}",
        "generation": 1,
        "deployment": "qwen",
        "index": 0,
        "spec": {"clusterName": cluster, "engines": list(engines)},
    }
    return ApplyReplica(
        namespace=namespace, name=name, cluster=cluster, **{**given, **fields}
    )
