"""The steps that place one deployment.

The steps are: retain, scale down, roll out, filter, score, place within `limits`, and
preempt. They work on a `FleetOverlay` and change nothing else. The fleet itself is in
`fleet`, device matching in `hardware`, and texts for users in `explain`.
"""
