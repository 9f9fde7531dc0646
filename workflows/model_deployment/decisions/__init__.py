"""The decisions of a ModelDeployment, as pure functions of its state.

They cover requests, answers, counts, templates and conditions. The controller decides
when to call them.
"""
