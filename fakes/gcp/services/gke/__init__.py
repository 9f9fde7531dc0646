"""Google Kubernetes Engine: clusters, node pools, and the operations that change them."""
