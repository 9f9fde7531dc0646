"""How an entity registers at the objects that it uses, and waits for missing ones.

The reports of a used object to its registered users do not belong here.
"""
