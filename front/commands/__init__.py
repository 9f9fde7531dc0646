"""Requests that only the `modelplane` CLI sends.

These are retries, revisions of deployments, and ServingStacks. Kubernetes clients do
not know them, so they are below `/v1` and not part of the Kubernetes API.
"""
