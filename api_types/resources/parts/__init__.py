"""The parts that several kinds share: base types, engines, pod templates, rollout and scheduling.

Not here: anything that is a kind of its own. May import the root of `api_types` only.
"""
