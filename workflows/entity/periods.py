"""How often entities do periodic work.

A test divides these periods to let a day pass in minutes.

An idle day may cost an entity 300 events of history, whatever the size of its fleet.
One resync costs 5 (a timer of 2, a workflow task of 3), and 1 for the local activity
that checks whether the receivers still run. More than 16 receivers need an activity and
another task, which cost 6. So an hour costs 6 to 11, and a day 144 to 264. A replica
with copies of Secrets compares these in the same pass, by another activity and task: 12
an hour, 288 a day. Two resyncs an hour would exceed the limit.
"""

from datetime import timedelta

# How often an entity checks whether its receivers still know its reports.
RESYNC = timedelta(hours=1)
# Entities that were started together do not check together.
RESYNC_JITTER = 0.04

# How often an activity looks for a missing object: at first, and after a while.
# Temporal makes these attempts, and they cost no history.
AWAIT_FIRST = timedelta(seconds=5)
AWAIT_LONGEST = timedelta(minutes=15)

# How often the scheduler recounts its ledger. A timer, a task and a local activity make
# 144 events a day.
LEDGER_AUDIT = timedelta(hours=1)
