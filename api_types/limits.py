"""Limits that several packages check: admission, workflows and the scheduler."""

REPLICAS_MAX = 1000
"""Replicas of one ModelDeployment."""
