"""The objects of the fleet, whether they are reached at Temporal or through the front: what commands may ask of either, and the choice.

Not here: how either is reached (`temporal`, `through_front`), what only Temporal can answer (`planning`, `history`).
"""
