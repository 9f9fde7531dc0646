"""A cluster on Amazon EKS: its objects, with the arguments of the boto3 clients. Spec: provisioning.md 7.

May import what all clouds share. Not here: calls.
"""
