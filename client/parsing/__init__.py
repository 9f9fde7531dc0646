"""How the program reads its command line: help texts, suggestions, completion.

Commands do not belong here.
"""
