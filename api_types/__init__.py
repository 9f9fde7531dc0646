"""The API: the resource model, its validation, and the messages between workflows.

Each module in this folder holds one kind of fact: labels, names, digests, errors,
settings, prices. No code here calls a Temporal client, a cluster, a cloud or the
scheduler.
"""
