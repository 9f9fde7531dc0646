"""Past decisions of the scheduler, read from histories and repeated on this machine.

Not here: future decisions (`planning`), and printing (`commands`).
"""
