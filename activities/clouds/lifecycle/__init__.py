"""The steps of every cloud object: find, create, wait, change, recreate, delete.

A cloud implements `handler` per kind of object. `ensure` and `delete` drive it.
"""
