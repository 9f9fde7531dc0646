"""The task queues of Temporal.

They are constants, not settings: workflow code names them, and what it names must be the same on every replay.
"""

WORKFLOWS = "modelplane"
SCHEDULER = "modelplane-scheduler"
CLUSTERS = "modelplane-clusters"
