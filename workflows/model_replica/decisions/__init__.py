"""What a ModelReplica decides and concludes, as pure functions of its state, its observations and the time.

No part of the workflow is imported here, nothing waits, and nothing is changed.
"""
