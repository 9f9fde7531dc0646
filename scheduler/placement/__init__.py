"""How one deployment is placed: retain, scale down, roll out, filter, score, place within `limits`, preempt.

All of it works on a `FleetOverlay` and changes nothing else. Not here: the fleet itself (`fleet`), matching of devices (`hardware`),
texts for users (`explain`).
"""
