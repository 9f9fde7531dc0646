/**
 * The rows of the fleet: regions, and the pools of their clusters.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {import("./states.js").State} State
 * @typedef {import("./capacity.js").Charge} Charge
 * @typedef {import("./capacity.js").Unit} Unit
 * @typedef {{name: string, unit: Unit, charge: Charge, className: string, facts: string[]}} Pool
 * @typedef {{tree: Tree, name: string, region: string, state: State, closed: string,
 *   since: string, pools: Pool[], replicas: number}} Cluster
 * @typedef {{name: string, charge: Charge, devices: Charge, clusters: Cluster[],
 *   notReady: number}} Region `devices`: the charge of the pools with device accounting
 */

import { add, chargeByLedger, chargeOf, noNodes } from "./capacity.js";
import { byName, condition, isReady, stateOf } from "./states.js";

const REGION_LABEL = "modelplane.ai/region";
/** The region of clusters that name none. */
export const NO_REGION = "no region";
const SILENT = ["Unreachable", "WaitingForWorker", "ClusterUnreachable"];

/**
 * @param {Tree} tree
 * @returns {string}
 */
export function regionOf(tree) {
  const labels = /** @type {any} */ (tree.metadata).labels ?? {};
  const sources = Object.values(tree.spec?.cluster ?? {});
  const cloud = sources.find((/** @type {any} */ each) => each?.region ?? each?.location);
  const { region, location } = /** @type {any} */ (cloud ?? {});
  return labels[REGION_LABEL] ?? region ?? location ?? NO_REGION;
}

/**
 * @param {Tree} tree
 * @returns {"" | "draining" | "silent" | "wasted"} why the cluster takes no new replicas
 */
export function closedBy(tree) {
  if (condition(tree, "SchedulingDisabled")?.status === "True") return "draining";
  if (tree.metadata.deletionTimestamp) return "draining";
  if (isReady(tree)) return "";
  return isSilent(tree) ? "silent" : "wasted";
}

/**
 * @param {Tree} tree
 * @returns {boolean} whether the cluster does not answer, so that its numbers are old
 */
export function isSilent(tree) {
  const reasons = ["Ready", "ClusterReady"].map((type) => condition(tree, type));
  return reasons.some((each) => each?.status !== "True" && SILENT.includes(each?.reason ?? ""));
}

/**
 * @param {Map<string, Tree>} clusters
 * @param {Map<string, Tree>} replicas
 * @param {import("./capacity.js").Ledger} ledger
 * @returns {Region[]} by name, with their clusters by name
 */
export function regionsShown(clusters, replicas, ledger) {
  /** @type {Map<string, Tree[]>} */
  const placed = new Map();
  for (const replica of replicas.values()) {
    const name = replica.spec?.clusterName ?? "";
    const there = placed.get(name);
    if (there) there.push(replica);
    else placed.set(name, [replica]);
  }
  /** @type {Map<string, Region>} */
  const regions = new Map();
  for (const tree of [...clusters.values()].sort(byName)) {
    const shown = clusterShown(tree, placed.get(tree.metadata.name) ?? [], ledger);
    const region = regions.get(shown.region) ?? {
      name: shown.region,
      charge: noNodes(),
      devices: noNodes(),
      clusters: [],
      notReady: 0,
    };
    region.clusters.push(shown);
    region.notReady += Number(shown.state.sort !== "ready");
    for (const pool of shown.pools) {
      add(pool.unit === "devices" ? region.devices : region.charge, pool.charge);
    }
    regions.set(shown.region, region);
  }
  return [...regions.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/**
 * @param {Tree} tree
 * @param {Tree[]} replicas on this cluster
 * @param {import("./capacity.js").Ledger} ledger
 * @returns {Cluster}
 */
function clusterShown(tree, replicas, ledger) {
  const closed = closedBy(tree);
  const told = condition(tree, closed === "draining" ? "SchedulingDisabled" : "Ready");
  const wanted = tree.spec?.nodePools ?? [];
  const pools = (tree.status?.gpuPools ?? []).map((/** @type {any} */ pool) => {
    const row = ledger.rows.get(`${tree.metadata.name}/${pool.name}`);
    const unit = row?.unit ?? "nodes";
    const isOfLedger = row && (unit === "devices" || ledger.isPartial);
    const onNodes = unit === "devices" ? [`on ${pool.nodes ?? 0} nodes`] : [];
    return {
      name: pool.name,
      unit,
      charge: isOfLedger ? chargeByLedger(row, closed) : chargeOf(pool, closed, replicas),
      className: wanted.find((/** @type {any} */ each) => each.name === pool.name)?.className ?? "",
      facts: [...onNodes, ...poolFacts(pool, tree)],
    };
  });
  return {
    tree,
    name: tree.metadata.name,
    region: regionOf(tree),
    state: stateOf(tree),
    closed,
    since: told?.lastTransitionTime ?? "",
    pools,
    replicas: replicas.length,
  };
}

/**
 * @param {any} pool
 * @param {Tree} cluster
 * @returns {string[]} the facts that lower its capacity
 */
function poolFacts(pool, cluster) {
  const counts = cluster.status?.nodes ?? [];
  const seen = counts.find((/** @type {any} */ each) => each.pool === pool.name);
  const isLess = seen && seen.schedulable < seen.total;
  return [
    isLess ? `${seen.schedulable} of ${seen.total} nodes accept pods` : "",
    pool.classMissing ? "its class is deleted" : "",
    pool.unusable ?? "",
    pool.shortage ?? "",
  ].filter(Boolean);
}
