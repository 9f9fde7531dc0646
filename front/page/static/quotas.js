/**
 * The rows of quotas and queues: the use of capacity by namespaces and admission queues.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {import("./front_data.js").Capacity} Capacity
 * @typedef {{count: number, since: string, reason: string, command: string}} Waiting
 * @typedef {{key: string, name: string, word: string, facts: string, command: string}} QuotaRow
 *   `word`: the state; empty if nothing waits
 */

import { age, lasting } from "./ages.js";
import { commandName, condition } from "./states.js";

/**
 * @param {Map<string, Tree>} deployments
 * @returns {Map<string, Waiting>} the replicas without a place, by namespace; the reason and
 *   the command are those of the longest wait
 */
function waitingBy(deployments) {
  /** @type {Map<string, Waiting>} */
  const found = new Map();
  for (const tree of deployments.values()) {
    const missing = (tree.spec?.replicas ?? 0) - (tree.status?.replicas?.total ?? 0);
    if (missing <= 0 || tree.metadata.deletionTimestamp) continue;
    const namespace = tree.metadata.namespace ?? "";
    const scheduled = condition(tree, "ReplicasScheduled");
    const since = scheduled?.lastTransitionTime ?? /** @type {any} */ (tree.metadata).creationTimestamp ?? "";
    const before = found.get(namespace);
    const count = missing + (before?.count ?? 0);
    if (before && before.since <= since) before.count = count;
    else {
      const reason = scheduled?.message || "the scheduler has not decided yet";
      const command = `modelplane explain ${commandName("ModelDeployment", tree)}`;
      found.set(namespace, { count, since, reason, command });
    }
  }
  return found;
}

/**
 * @param {Capacity | null} capacity
 * @param {string} problem why the capacity is unknown or old; empty if it is neither
 * @param {Map<string, Tree>} deployments
 * @param {import("./location.js").View} view
 * @param {number} now
 * @returns {{rows: QuotaRow[], texts: string[]}} the rows that the view wants, and notes
 */
export function quotaSection(capacity, problem, deployments, view, now) {
  const words = view.search.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = quotaRows(capacity, waitingBy(deployments), now)
    .filter((each) => words.every((word) => each.name.toLowerCase().includes(word)))
    .filter((each) => !view.unready || each.word);
  const isRefused = capacity && !capacity.quotas && !capacity.queues;
  const none = capacity ? "No quotas, and nothing is used." : "Not loaded yet.";
  const texts = [
    problem ? `The use of capacity cannot be read: ${problem}.` : "",
    problem && capacity ? `The numbers are from ${age(capacity.at, now)} ago.` : "",
    isRefused ? "Not allowed: quotas need the right to list deployments, queues the right to list clusters." : "",
    problem || isRefused || rows.length > 0 ? "" : none,
  ];
  return { rows, texts: texts.filter(Boolean) };
}

/**
 * @param {Capacity | null} capacity
 * @param {Map<string, Waiting>} waiting
 * @param {number} now
 * @returns {QuotaRow[]} namespaces and their quotas by name, then queues
 */
function quotaRows(capacity, waiting, now) {
  const { namespaces = [], quotas = [], queues = [] } = capacity ?? {};
  const uses = byNamespace(namespaces);
  const limits = byNamespace(quotas);
  const all = [...new Set([...uses.keys(), ...limits.keys(), ...waiting.keys()])].sort();
  const rows = all.map((name) => {
    return ofNamespace(name, uses.get(name) ?? [], limits.get(name) ?? [], waiting.get(name), now);
  });
  return [...rows, ...queues.map(ofQueue)];
}

/**
 * @param {any[]} rows
 * @returns {Map<string, any[]>}
 */
function byNamespace(rows) {
  /** @type {Map<string, any[]>} */
  const found = new Map();
  for (const row of rows) {
    const others = found.get(row.namespace);
    if (others) others.push(row);
    else found.set(row.namespace, [row]);
  }
  return found;
}

/**
 * @param {string} name
 * @param {any[]} uses its rows of `modelplane top namespaces`
 * @param {any[]} own its quotas
 * @param {Waiting | undefined} waits
 * @param {number} now
 * @returns {QuotaRow}
 */
function ofNamespace(name, uses, own, waits, now) {
  const used = uses.map((each) => `${each.used} ${each.unit} used, ${each.held} held`);
  const limits = own.map((each) => {
    const parts = [limit(each.nodes, each.maxNodes, "nodes"), limit(each.devices, each.maxDevices, "devices")];
    return `quota of ${each.pools}: ${parts.filter(Boolean).join(", ") || "no limit"}`;
  });
  const replicas = waits?.count === 1 ? "1 replica waits" : `${waits?.count} replicas wait`;
  const reason = waits ? `${replicas} ${lasting(waits.since, now)}: ${waits.reason}` : "";
  const isFull = own.some((each) => isReached(each.nodes, each.maxNodes) || isReached(each.devices, each.maxDevices));
  return {
    key: `namespace ${name}`,
    name,
    word: waits ? `${waits.count} waiting` : isFull ? "Full" : "",
    facts: [
      reason,
      used.join("; ") || "nothing used",
      ...(limits.length > 0 ? limits : ["no quota"]),
      limits.length > 0 ? "nothing guaranteed or borrowed" : "",
    ].filter(Boolean).join("; "),
    command: waits?.command ?? `modelplane top quotas -n ${name}`,
  };
}

/**
 * @param {any} queue
 * @returns {QuotaRow}
 */
function ofQueue(queue) {
  const amount = (/** @type {number} */ each) => (each < 0 ? "unlimited" : `${each}`);
  return {
    key: `queue ${queue.cluster} ${queue.queue}`,
    name: `${queue.cluster}/${queue.queue}`,
    word: queue.waiting > 0 ? `${queue.waiting} waiting` : "",
    facts: [
      `${queue.used} devices used, ${amount(queue.guaranteed)} guaranteed, ${queue.borrowed} borrowed`,
      `limit ${amount(queue.limit)}, ${amount(queue.free)} more would be admitted`,
      queue.why ?? "",
      queue.tenants ? `for ${queue.tenants}` : "",
    ].filter(Boolean).join("; "),
    command: "modelplane top queues",
  };
}

/**
 * @param {number} used
 * @param {number} most negative for no limit
 * @param {string} unit
 * @returns {string} empty without a limit
 */
function limit(used, most, unit) {
  return most < 0 ? "" : `${used} of ${most} ${unit}`;
}

/**
 * @param {number} used
 * @param {number} most
 * @returns {boolean}
 */
function isReached(used, most) {
  return most >= 0 && used >= most;
}
