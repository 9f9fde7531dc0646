"""Plans, explanations and rendering on this machine, over files or over a copy of the live fleet that is only read.

The scheduler package decides; here its input is gathered and its answers become trees for `-o json`. Not here: how they are printed
(`client/output`).
"""
