"""StackUpgrades: which InferenceClusters upgrade their serving stacks now, and which wait for that.

`turns` decides, pure; `workflow` takes requests, sends answers and waits for the end of leases. What a cluster does with its turn is in
`workflows/inference_cluster/stack/`.
"""
