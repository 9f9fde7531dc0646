"""The API: the resource model, its validation, and the messages between workflows.

The modules in this folder hold one kind of fact each: labels, names, digests, errors, settings, prices. Nothing here calls out: no
Temporal client, no cluster, no cloud, no scheduler.
"""
