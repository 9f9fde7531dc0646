"""A whole fleet on one machine, with real parts.

Here are a Temporal server, one real Kubernetes control plane per cluster, and simulated GPU nodes, each on a loopback port with its own
data folder. Nothing here knows the product: it gives kubeconfigs, addresses and manifests, and the user or a test
applies them to the product. There is no container engine, no fake API server, and no path that exists only for tests.
"""
