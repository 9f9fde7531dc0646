"""How a scheduler without state learns what there is, and how a running one asks after what it does not know.

It continues the state of the scheduler before it if it can (`takeover`, and `lost_state` for what is handed over). Else it reads the
accounts of all entities. The rules of that, with what a repeat, a loss, a late and a double message do:

* **Epoch.** A scheduler without state draws the wall time in ms. An account carries the epoch that its entity has seen; if one is greater,
  the scheduler takes one more than that and begins anew. A running scheduler that reads a greater epoch in a request or a report takes one
  more, and announces it. So an epoch is greater than every one before, whatever the clocks say.
* **Fence.** Each cluster, class and deployment is signalled the epoch right before it is queried for its account, so an account is that
  of an entity which has read it. From then on a deployment ignores answers of smaller epochs, and what it was given and has not started is
  void: an answer that was on its way can start nothing that the account does not list. A repeat of the signal changes nothing; one of a
  smaller epoch makes the entity report its own.
* **Accounts.** A deployment lists every replica that it holds with its ledger entry, started or not. Then all replicas are listed, and
  those that no deployment has listed are queried themselves. So a deployment or a replica that visibility leaves out is charged.
* **Two listings.** Visibility is written after the fact: a row may be late, and one that moves from page to page may be in neither. So
  deployments and replicas are listed twice, at least two seconds apart, and the second time those are read that the first left out. What is
  started is charged even if both listings leave it out. What is not, only its deployment knows: one that runs and that both leave
  out could start, until it next hears of this scheduler, what the lost one gave it.
* **What stands there.** Clusters are read last. Each names the replicas of which its watch sees objects; one that no object has reported is
  queried by its name, and until it has answered its cluster takes no new replica. So is a replica whose deployment does not run, or whose
  workflow was terminated, and that visibility leaves out.
* **Clusters that no listing has.** One that replicas are charged on is queried by its name, also if it is closed.
  Until it has answered no replica is evicted because its cluster is gone; one that was terminated is not.
  A cluster whose runs the server has deleted cannot answer: its replicas stay until its user
  applies it again.
* **Who does not answer** holds up its own cluster: that takes no new replica. It is asked again beside the decisions, by an activity that
  waits until one of them answers (`unresponsive`), 5 s to 5 min apart, and writes nothing meanwhile. Deletions of other deployments and
  clusters wait for ten minutes at most: it may name a replica of theirs that no other object knows.
* **Unknown uid.** A request that lists a replica which the ledger does not have waits until the account of its deployment is read, and so
  do the clusters that it names. A replica that is known only from its deployment, and that visibility does not list, is queried too: one
  that says that it is gone is not charged.
* **Late accounts** add what is unknown and change nothing that the ledger has. A uid that was released is never added again.

`accounts` is what one activity reads, packed for the history; `activities` read it; `adoption` takes it over into the cache. `survey` is
the rebuild, step by step, over several runs if it has to be; `unresponsive` are those that are asked beside the decisions.
"""
