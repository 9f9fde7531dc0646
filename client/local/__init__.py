"""The fleet of `modelplane up`: a testbed, a worker and a front on this machine.

No other package of the client imports `testbed`.
"""
