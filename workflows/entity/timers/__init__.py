"""Time and timers of workflows."""
