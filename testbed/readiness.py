"""One question to a part of the testbed each: does it serve already? Nothing here waits or changes anything."""

import socket

import httpx

from testbed.cluster import objects
from testbed.cluster.kube import Kube, collection


def listens(port: int) -> bool:
    """Whether a server accepts connections on a loopback port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2.0).close()
    except OSError:
        return False
    return True


def answers_http(url: str) -> bool:
    """Whether an HTTP server answers, with any status: without a route a gateway answers 404."""
    try:
        httpx.get(url, trust_env=False, timeout=2.0)
    except httpx.TransportError:
        return False
    return True


def is_healthy(url: str) -> bool:
    """Whether a health endpoint answers 200."""
    # The schedulers sign their serving certificates themselves, and nothing but their health is read.
    try:
        return httpx.get(url, verify=False, trust_env=False, timeout=2.0).status_code == httpx.codes.OK  # noqa: S501
    except httpx.TransportError:
        return False


def has_root_ca(kube: Kube) -> bool:
    """Whether the controller manager works: it publishes the root certificate into every namespace."""
    return kube.get("/api/v1/namespaces/default/configmaps/kube-root-ca.crt") is not None


def nodes_are_ready(kube: Kube) -> bool:
    """Whether kwok has taken over all simulated nodes."""
    nodes = kube.list(collection("v1", "Node"), labelSelector=objects.MANAGED)
    return all(any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", [])) for node in nodes)


def has_address(kube: Kube, path: str) -> bool:
    """Whether a Gateway has an address in its status."""
    gateway = kube.get(path)
    return bool(gateway and gateway.get("status", {}).get("addresses"))
