"""A whole fleet on one machine, with real parts.

Here are a Temporal server, one real Kubernetes control plane per cluster, and simulated GPU nodes, each on a loopback port with its own
data folder. Nothing here knows the product: the testbed hands out kubeconfigs, addresses and manifests, and whoever wants to try the
product applies them. There is no container engine, no fake API server, and no path that exists only for tests.
"""
