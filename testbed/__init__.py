"""A whole fleet on one machine, with real parts.

The testbed runs a Temporal server, one real Kubernetes control plane per cluster, and
simulated GPU nodes. Each server has its own loopback port and data folder. The testbed
does not know the product: it provides kubeconfigs, addresses and manifests, and the
user or a test applies them. There is no container engine, no fake API server, and no
code path only for tests. Pods of the request path can run their real programs, for
which `node/` does the work of a kubelet and of kube-proxy. Two modules are exceptions:
`cloud_worker.py` and `fake_google.py` connect the product to the fake clouds.
"""
