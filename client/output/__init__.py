"""What commands print: tables, machine-readable formats, progress, plans as text.

Not here: error messages (`errors`) and what to print (`commands`). May import `planning`, `temporal` and `refs`.
"""
