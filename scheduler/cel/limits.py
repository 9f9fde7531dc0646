"""Limits on the size, the depth and the cost of a selector.

The limits on size and depth are those of the workload cluster, whose API server rejects
a claim that exceeds them. The cost limit is lower than the million of Kubernetes,
because Python evaluates much more slowly than Go. The policy of a fleet may raise it.
"""

from __future__ import annotations

# Kubernetes counts bytes of UTF-8.
TEXT_BYTES_MAX = 10_240

# The maximum depth of the tree, and of the recursion in the parser of cel-go.
NESTING_MAX = 250

# The limit of Kubernetes for a DRA selector, for the estimate and again at run time.
KUBERNETES_COST_MAX = 1_000_000

# The default of this scheduler, in the same units.
FLEET_COST_MAX = 20_000

# Many operations have no cost in units: terms of `&&`, appending to a list, comparing
# lists of lists. Therefore the machine also counts its steps, which take 0.15 to 0.3 µs
# each. A selector of 20,000 units may take 300,000 steps, in 0.05 to 0.1 s. A loop of
# that cost takes 30,000 steps.
STEPS_MIN = 100_000
STEPS_PER_UNIT = 10

# RE2 compiles a bounded repetition by copying: `\pL{999}` would be 600,000
# instructions, 35 ms and 8 MiB for ten characters. This much memory holds some 25,000
# instructions.
PATTERN_BYTES_MAX = 1024 * 1024

# Steps of compiling a pattern of that size, even if it is rejected afterwards.
PATTERN_STEPS_MAX = 50_000

# Instructions of a pattern that are compiled in the time of one cost unit of a loop.
INSTRUCTIONS_PER_UNIT = 10

# The limit for the selectors of one request on all devices of a fleet, in steps and
# cost units of 0.15 to 0.3 µs. It is about a second, while a batch of requests has
# thirty. Eight plain selectors on 500 classes of sixteen devices take 800,000.
REQUEST_WORK_MAX = 3_000_000

# After so much work a batch ends, and the next batch decides the remaining requests.
BATCH_WORK_MAX = 2 * REQUEST_WORK_MAX

# A batch ends as well after so much processor time, for work that is not counted:
# hundreds of new templates on ten thousand clusters take minutes.
BATCH_SECONDS_MAX = 2.0

# The limit for work that neither units nor steps measure accurately.
EVALUATION_SECONDS_MAX = 2.0
