"""The desired objects of a GKE cluster with the arguments of their calls.

The entry point is `objects`.
"""
