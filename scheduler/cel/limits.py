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

# Cost units count what Kubernetes charges for, and much of an evaluation is free there: terms of `&&`, appending to a list, comparing
# lists of lists. So the machine counts its steps too, at 0.15 to 0.3 µs each. A selector of 20,000 units has 300,000 steps, 0.05 to 0.1 s.
# A loop of that cost takes 30,000.
STEPS_MIN = 100_000
STEPS_PER_UNIT = 10

# RE2 compiles a bounded repetition by copying: `\pL{999}` would be 600,000 instructions, 35 ms and 8 MiB for ten characters. This much
# memory holds some 25,000 instructions.
PATTERN_BYTES_MAX = 1024 * 1024

# What compiling a pattern of that size takes in steps, whether it is then refused or not.
PATTERN_STEPS_MAX = 50_000

# Instructions of a pattern that are compiled in the time of one cost unit of a loop.
INSTRUCTIONS_PER_UNIT = 10

# What the selectors of one request may take on all the devices of a fleet, in steps and cost units of 0.15 to 0.3 µs: about a second, where
# a batch of requests has thirty. Eight plain selectors on 500 classes of sixteen devices take 800,000.
REQUEST_WORK_MAX = 3_000_000

# After so much work a batch ends, and the requests left are decided in the next one.
BATCH_WORK_MAX = 2 * REQUEST_WORK_MAX

# A last limit for what neither measures well.
EVALUATION_SECONDS_MAX = 2.0
