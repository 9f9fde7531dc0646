"""Install, maintain, upgrade and remove the serving stack of a managed cluster.

`plan` decides which steps are next and reads observations, `verdict` derives
conditions. Both are pure. `installer` and `removal` run the steps with calls in the
background.
"""
