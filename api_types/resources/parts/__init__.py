"""The parts that several kinds share, such as engines and pod templates.

Not here: complete kinds. May import the root of `api_types` only.
"""
