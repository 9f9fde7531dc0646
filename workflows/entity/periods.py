"""How often entities do something while nothing happens. A test lets a day pass in minutes by dividing what stands here.

An idle day may cost an entity 300 events of history, whatever the size of its fleet. One resync costs 5 (a timer of 2, a workflow task of
3), and 1 for the local activity that finds out whether the others still are who they were; with more than 16 of them that is an activity
and another task, 6. So an hour costs 6 to 11, and a day 144 to 264. A replica with copies of Secrets compares these in the same pass, by
another activity and task: 12 an hour, 288 a day. Twice an hour would exceed it.
"""

from datetime import timedelta

# How often an entity checks whether those that it reports to still know what it reported.
RESYNC = timedelta(hours=1)
# Entities that were started together do not check together.
RESYNC_JITTER = 0.04

# How often something is looked for that does not exist: at first, and after a while. The attempts are Temporal's and cost no history.
AWAIT_FIRST = timedelta(seconds=5)
AWAIT_LONGEST = timedelta(minutes=15)

# How often the scheduler recounts its ledger: a timer, a task and a local activity, 144 events a day.
LEDGER_AUDIT = timedelta(hours=1)
