"""Static types of a selector: what Kubernetes would reject is rejected here before anything runs."""
