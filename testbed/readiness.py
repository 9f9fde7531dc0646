"""Checks of whether a part of the testbed serves.

The checks neither wait nor change anything.
"""

import socket

import httpx

from testbed.cluster import objects
from testbed.cluster.kube import Kube, collection


def listens(port: int) -> bool:
    """Return whether a server accepts connections on a loopback port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2.0).close()
    except OSError:
        return False
    return True


def answers_http(url: str) -> bool:
    """Return whether an HTTP server responds, with any status.

    A gateway without routes responds with 404.
    """
    try:
        httpx.get(url, trust_env=False, timeout=2.0)
    except httpx.TransportError:
        return False
    return True


def is_healthy(url: str) -> bool:
    """Return whether a health endpoint responds with 200."""
    # kube-scheduler signs its serving certificate itself, and only its health is read.
    try:
        return (
            httpx.get(url, verify=False, trust_env=False, timeout=2.0).status_code  # noqa: S501
            == httpx.codes.OK
        )
    except httpx.TransportError:
        return False


def has_root_ca(kube: Kube) -> bool:
    """Return whether the controller manager works.

    The controller manager publishes the root certificate into every namespace.
    """
    return (
        kube.get("/api/v1/namespaces/default/configmaps/kube-root-ca.crt") is not None
    )


def nodes_are_ready(kube: Kube) -> bool:
    """Return whether kwok manages all simulated nodes."""
    nodes = kube.list(collection("v1", "Node"), labelSelector=objects.MANAGED)
    return all(
        any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in node["status"].get("conditions", [])
        )
        for node in nodes
    )


def has_address(kube: Kube, path: str) -> bool:
    """Return whether a Gateway has an address in its status."""
    gateway = kube.get(path)
    return bool(gateway and gateway.get("status", {}).get("addresses"))
