"""Kubernetes objects in general: labels and ownership marks, the rendered set, copies of Secrets, queueing, teardown order."""
