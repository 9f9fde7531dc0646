"""The laws of placement with every policy at once, over random small worlds, compared with brute force written from the specification.

`worlds` draws the worlds. `matching`, `books`, `rules` and `search` are the second program: devices, capacity and quotas, rules about
places, every arrangement. It reads the plain inputs and decisions of the scheduler and shares no other code with it. `steps` decides a
world; `lawful`, `kept`, `complete`, `reasons` and `asking` hold the laws, which `test_policies` checks.
"""
