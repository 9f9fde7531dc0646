"""What every cloud object goes through, whichever cloud it is at: looked for, created, waited for, changed, built again, deleted.

`handler` is what a cloud implements per kind of object; `ensure` and `delete` drive it (spec/provisioning.md 3.3, 3.4).
"""
