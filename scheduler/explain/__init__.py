"""Why replicas are where they are, or nowhere: conditions, headlines, near misses, reports per cluster and pool.

Reads the same filters as placement, so an explanation cannot differ from the decision. Not here: anything that changes a fleet.
"""
