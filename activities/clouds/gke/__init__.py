"""A cluster on Google Kubernetes Engine: its objects, with the arguments of the Google Cloud clients. Spec: provisioning.md 6.

May import what all clouds share. Not here: calls.
"""
