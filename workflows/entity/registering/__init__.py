"""How an entity registers at those that it uses, and waits for those that do not run.

Not here: how the other side reports to who is registered.
"""
