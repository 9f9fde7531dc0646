"""Limits on the size, the depth and the cost of a selector.

The first two are the workload cluster's own: beyond them its API server refuses the claim. The cost limit is lower than
Kubernetes' million because Python evaluates far slower than Go; the fleet's policy may raise it.
"""

from __future__ import annotations

# Kubernetes counts bytes of UTF-8.
TEXT_BYTES_MAX = 10_240

# Levels of the tree, and levels of nesting in the reference parser.
NESTING_MAX = 250

# What Kubernetes allows a DRA selector, as an estimate at admission and again at run time.
KUBERNETES_COST_MAX = 1_000_000

# The default of this scheduler, in the same units.
FLEET_COST_MAX = 20_000

# A last limit for what cost units do not measure well.
EVALUATION_SECONDS_MAX = 2.0
