"""ModelReplica: the objects of one serving instance on one cluster, from the first apply to the last deletion.

`workflow` has signals, queries and the loop; its parts take explicit inputs and do not call back.
"""
