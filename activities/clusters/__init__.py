"""Activities of InferenceCluster: connect to a cluster, watch it, read its free capacity."""
