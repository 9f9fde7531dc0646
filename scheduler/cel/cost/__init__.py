"""The cost of a selector, estimated and measured, with the limits that Kubernetes applies."""
