"""Answers API requests as a Kubernetes API server does."""
