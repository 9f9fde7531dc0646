"""What every entity workflow has: object metadata, conditions, events, the main loop, and activity options.

Not here: anything that is true for one kind only.
"""
