"""A ModelCache on one cluster: the volume claim and the Job that fills it.

Imports `objects` and `inputs` only.
"""
