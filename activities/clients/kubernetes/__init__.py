"""The Kubernetes API behind `ClusterApi`: kubeconfigs, sessions, discovery, errors, rate limits."""
