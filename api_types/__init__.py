"""What users write and what workflows tell each other.

Models, labels, names, errors and messages. Nothing here calls out: no Temporal client, no cluster, no cloud, no scheduler.
"""
