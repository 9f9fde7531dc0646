"""StackUpgrades: the turns of InferenceClusters to upgrade their serving stacks.

`turns` is pure and decides. `workflow` receives requests, sends answers and waits for
the end of leases. `workflows/inference_cluster/stack/` has the upgrade itself.
"""
