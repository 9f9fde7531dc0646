"""Placement in the live fleet: the scheduler's input, and explanations from it.

The command line and the front explain placements with the same code. The live fleet is
only read, and the scheduler package decides. Not here: plans of changes
(`client/planning`).
"""
