"""The desired objects of an EKS cluster with the arguments of their calls.

The entry point is `objects`.
"""
