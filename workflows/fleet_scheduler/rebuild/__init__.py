"""How a scheduler without state reads the fleet, and how a running one finds unknowns.

A scheduler without state continues with the state of its predecessor if possible
(`takeover`; `lost_state` is the transferred state). Otherwise it reads the accounts of
all entities. These are the rules, including repeated, lost, late and duplicate
messages:

* **Epoch.** A scheduler without state draws the wall time in milliseconds. An account
carries the epoch that its entity has seen. If that epoch is greater, the scheduler
draws the next greater one and begins again. A running scheduler that reads a greater
epoch in a request or a report also draws the next greater one, and announces it. So an
epoch is greater than all earlier ones, whatever the clocks say.

* **Fence.** Each cluster, class and deployment receives the epoch right before the
query for its account, so every account comes after the epoch. From then on a deployment
ignores answers with smaller epochs, and its placements that have not started are void.
So a late answer can start no replica that the account does not list. A repeated signal
changes nothing. A signal with a smaller epoch makes the entity report its own.

* **Accounts.** A deployment lists every replica that it holds with its ledger entry,
started or not. Then all replicas are listed, and the replicas that no deployment has
listed are queried. So a deployment or a replica that visibility omits is charged.

* **Two listings.** Visibility is written after the fact. A row may be late, and a row
that moves from page to page may be on neither. So deployments and replicas are listed
twice, at least two seconds apart, and the second pass reads the entities that the first
one omitted. A started replica is charged even if both listings omit it. Only its
deployment knows a replica that has not started. A running deployment that both listings
omit could start placements of the lost scheduler, until it next receives a message of
this scheduler.

* **Objects on clusters.** Clusters are read last. Each lists the replicas whose objects
its watch sees. A replica that no object has reported is queried by its name, and its
cluster takes no new replica until it has answered. The same holds for a replica that
visibility omits and whose deployment does not run or whose workflow was terminated.

* **Unlisted clusters.** A cluster with charged replicas that no listing has is queried
by its name, even if it is closed. Until it has answered, no replica is evicted because
its cluster is gone. A terminated cluster is not gone. A cluster whose runs the server
has deleted cannot answer, so its replicas stay until a user applies it again.

* **Unresponsive entities** block only their own cluster, which takes no new replica. An
activity queries them again, concurrently with decisions and 5 s to 5 min apart, until
one of them answers (`unresponsive`). It adds no history meanwhile. Deletions of other
deployments and clusters wait for ten minutes at most, because an unresponsive entity
may list replicas of theirs that no other object knows.

* **Unknown uid.** A request may list a replica that is not in the ledger. It waits
until the account of its deployment is read, and so do the clusters that it lists. A
replica that only its deployment knows, and that visibility omits, is queried too. If it
reports its end, it is not charged.

* **Late accounts** add unknown entries and change nothing in the ledger. A released uid
is never added again.

`activities` reads the accounts, `accounts` packs them for the history, and `adoption`
applies them to the cache. `survey` is the rebuild in steps, over several runs if
necessary. `unresponsive` queries unresponsive entities concurrently with decisions.
"""
