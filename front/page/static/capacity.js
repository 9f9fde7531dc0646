/**
 * The capacity of pools as the scheduler charges it: nodes, of which each pod of a replica has
 * a whole one, or devices.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {"used" | "held" | "free" | "wasted" | "draining" | "silent"} NodeSort
 * @typedef {Record<NodeSort, number>} Charge numbers of nodes or devices
 * @typedef {"nodes" | "devices"} Unit
 * @typedef {{rows: Map<string, any>, isPartial: boolean}} Ledger the pools of the scheduler's
 *   ledger by cluster and pool; `isPartial`: the user may not read all replicas
 */

/** @type {NodeSort[]} the order in which nodes are drawn and counted */
export const NODE_SORTS = ["used", "held", "free", "wasted", "draining", "silent"];

/** @type {WeakMap<Tree, Map<string, number>>} */
const podsBefore = new WeakMap();

/** @returns {Charge} */
export function noNodes() {
  return { used: 0, held: 0, free: 0, wasted: 0, draining: 0, silent: 0 };
}

/**
 * Adds the nodes of one charge to a sum.
 *
 * @param {Charge} sum
 * @param {Charge} charge
 */
export function add(sum, charge) {
  for (const sort of NODE_SORTS) sum[sort] += charge[sort];
}

/**
 * @param {Charge} charge
 * @returns {number}
 */
export function total(charge) {
  return NODE_SORTS.reduce((sum, sort) => sum + charge[sort], 0);
}

/**
 * @param {Charge} charge
 * @returns {string} such as `2 used, 1 held, 0 free`; the rare sorts only if there are any
 */
export function chargeText(charge) {
  const always = ["used", "held", "free"];
  return NODE_SORTS.filter((sort) => charge[sort] > 0 || always.includes(sort))
    .map((sort) => `${charge[sort]} ${sort}`)
    .join(", ");
}

/**
 * @param {Tree} replica
 * @returns {Map<string, number>} the number of its pods that claim devices, per pool
 */
export function podsOf(replica) {
  const before = podsBefore.get(replica);
  if (before) return before;
  /** @type {Map<string, number>} */
  const pods = new Map();
  for (const engine of replica.spec?.engines ?? []) {
    for (const member of engine.members ?? []) {
      if ((member.deviceRequests ?? []).length === 0) continue;
      const each = member.role === "Worker" ? (member.worker?.nodes ?? 1) : 1;
      const pool = member.nodePoolName;
      pods.set(pool, (pods.get(pool) ?? 0) + each * (engine.copies ?? 1));
    }
  }
  podsBefore.set(replica, pods);
  return pods;
}

/**
 * Returns the charge of one pool. Nodes of replicas that are not Ready yet, or are being
 * removed, are held. Nodes that no new replica gets are draining, silent or wasted.
 *
 * @param {any} pool a pool of `status.gpuPools`
 * @param {"" | "draining" | "silent" | "wasted"} closed why the cluster takes no replicas
 * @param {Tree[]} replicas on this cluster
 * @returns {Charge}
 */
export function chargeOf(pool, closed, replicas) {
  const charge = noNodes();
  for (const replica of replicas) {
    const pods = podsOf(replica).get(pool.name) ?? 0;
    charge[isBound(replica) ? "used" : "held"] += pods;
  }
  const left = Math.max(0, (pool.nodes ?? 0) - charge.used - charge.held);
  const isUnusable = pool.unusable || pool.classMissing;
  charge[closed || (isUnusable ? "wasted" : "free")] = left;
  return charge;
}

/**
 * Returns the charge of one pool by the ledger. Devices are counted there only, and it has the
 * replicas that the user may not read.
 *
 * @param {any} row of `modelplane top pools`
 * @param {"" | "draining" | "silent" | "wasted"} closed
 * @returns {Charge}
 */
export function chargeByLedger(row, closed) {
  const { used, held, free, wasted } = row;
  if (!closed) return { ...noNodes(), used, held, free, wasted };
  return { ...noNodes(), used, held, [closed]: free + wasted };
}

/**
 * @param {import("./front_data.js").Capacity | null} capacity
 * @param {boolean} isPartial
 * @returns {Ledger}
 */
export function ledgerOf(capacity, isPartial) {
  const rows = (capacity?.pools ?? []).map((each) => /** @type {[string, any]} */ ([`${each.cluster}/${each.pool}`, each]));
  return { rows: new Map(rows), isPartial };
}

/**
 * @param {Tree} replica
 * @returns {boolean} whether it has started, and is not being removed
 */
function isBound(replica) {
  const isStarting = ["", "Pending", "Applying", "Starting"].includes(replica.status?.phase ?? "");
  return !isStarting && !replica.metadata.deletionTimestamp;
}
