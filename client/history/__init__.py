"""What the scheduler decided in the past, read from the histories of its runs and decided again on this machine.

Not here: what it would decide (`planning`), and how that is printed (`commands`).
"""
