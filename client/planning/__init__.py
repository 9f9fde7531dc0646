"""Plans, explanations and rendering on this machine, from files or the live fleet.

The live fleet is only read. The scheduler package decides; this package gathers its
input, and turns its answers into trees for `-o json`. Not here: how they are printed
(`client/output`).
"""
