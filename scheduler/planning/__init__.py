"""What would be decided: plans over manifests or over a copy of the live fleet, and questions such as headroom.

Uses the same scheduling cycle as the live scheduler. Not here: how an answer is printed (`client/output`).
"""
