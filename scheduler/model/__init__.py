"""Plain frozen data of the scheduler: its inputs, its decisions, policy, reasons, devices, and their JSON form.

No behaviour beyond what belongs to one value. Imports no other package of `scheduler`.
"""
