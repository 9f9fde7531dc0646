"""EKS with the states and refusals of AWS.

It does not use moto. It has clusters, node groups, add-ons, access entries, updates and
versions.
"""
