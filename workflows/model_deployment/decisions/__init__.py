"""What a ModelDeployment decides, as pure functions of its state: requests, answers, counts, templates, conditions.

Not here: when, and in which order; that is the controller's.
"""
