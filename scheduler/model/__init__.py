"""Plain frozen data of the scheduler: inputs, decisions, policy, reasons, devices.

The package also defines the JSON form of this data. Methods concern one value only. The
package imports no other package of `scheduler`.
"""
