"""Limits that several packages check: admission, workflows and the scheduler."""

REPLICAS_MAX = 1000
"""Replicas of one ModelDeployment."""

SELECTORS_BYTES_MAX = 32 * 1024
"""All device selectors of one ModelDeployment: the ledger entry of each of its replicas has them."""

CLASS_BYTES_MAX = 32 * 1024
"""The spec of one InferenceClass as JSON: an InferenceCluster carries and reports it for each of its eight pools."""

POLICY_BYTES_MAX = 64 * 1024
"""The fleet policy as JSON: the scheduler carries it beside everything else."""
