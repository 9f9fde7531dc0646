"""The laws of placement with all policies at once, over random small worlds.

`worlds` draws the worlds. `matching`, `books`, `rules` and `search` are a second
program by brute force: devices, capacity and quotas, rules about places, every
arrangement. It reads the plain inputs and decisions of the scheduler and shares no
other code with it. `steps` decides a world. `lawful`, `kept`, `complete`, `reasons` and
`asking` hold the laws, which `test_policies` checks.
"""
