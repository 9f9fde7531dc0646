"""Kubernetes rules that are reimplemented exactly: versions, taints and tolerations.

The expected values in tests come from the real Go code.
"""
