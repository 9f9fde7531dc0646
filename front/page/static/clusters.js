/**
 * The content of cluster cards: pools with their nodes, GPUs in use, and replicas.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {import("./states.js").State} State
 * @typedef {{mark: string, name: string, link: string, state: State, pods: number,
 *   gpus: number}} Occupant a replica with pods in a pool
 * @typedef {{marks: string[], used: number, names: string[]}} Cell a node
 * @typedef {{name: string, className: string, nodes: number, gpusPerNode: number,
 *   present: string, gpusUsed: number, cells: Cell[], notDrawn: number, without: number,
 *   occupants: Occupant[]}} Pool
 * @typedef {{key: string, name: string, link: string, state: State,
 *   notes: {type: string, text: string}[], facts: string[], pools: Pool[]}} Cluster
 */

import { packed, podsOf, sizeOf } from "./capacity.js";
import { fullName, notes, stateOf, workflowLink } from "./states.js";

/** The maximum number of nodes drawn per pool. Of the others, only their number is shown. */
export const NODES_DRAWN = 256;

/**
 * @param {Map<string, Tree>} clusters
 * @param {Map<string, Tree>} replicas
 * @param {{temporalUi: string, temporalNamespace: string}} settings
 * @returns {Cluster[]} by name
 */
export function clustersShown(clusters, replicas, settings) {
  /** @type {Map<string, Tree[]>} */
  const byCluster = new Map();
  for (const replica of [...replicas.values()].sort(byName)) {
    const name = replica.spec?.clusterName ?? "";
    byCluster.set(name, [...(byCluster.get(name) ?? []), replica]);
  }
  return [...clusters.values()]
    .sort(byName)
    .map((tree) => clusterShown(tree, byCluster.get(tree.metadata.name) ?? [], settings));
}

/**
 * @param {Tree} a
 * @param {Tree} b
 * @returns {number}
 */
export function byName(a, b) {
  return fullName(a) < fullName(b) ? -1 : 1;
}

/**
 * @param {Tree} tree
 * @param {Tree[]} replicas on this cluster
 * @param {{temporalUi: string, temporalNamespace: string}} settings
 * @returns {Cluster}
 */
function clusterShown(tree, replicas, settings) {
  const published = tree.status?.gpuPools ?? [];
  const pods = replicas.map((replica) => podsOf(replica, published));
  const wanted = tree.spec?.nodePools ?? [];
  const address = tree.status?.gateway?.address;
  return {
    key: tree.metadata.name,
    name: tree.metadata.name,
    link: workflowLink(settings, "InferenceCluster", tree),
    state: stateOf(tree),
    notes: notes(tree),
    facts: [tree.spec?.cluster?.source, address && `gateway ${address}`].filter(Boolean),
    pools: published.map((/** @type {any} */ pool) => {
      const spec = wanted.find((/** @type {any} */ each) => each.name === pool.name);
      const here = pods.map((each) =>
        each.filter((pod) => pod.pool === pool.name).map((pod) => pod.gpus),
      );
      return poolShown(pool, spec?.className ?? "", tree, replicas, here, settings);
    }),
  };
}

/**
 * @param {any} pool
 * @param {string} className
 * @param {Tree} cluster
 * @param {Tree[]} replicas
 * @param {number[][]} pods GPUs of each pod in the pool, per replica
 * @param {{temporalUi: string, temporalNamespace: string}} settings
 * @returns {Pool}
 */
function poolShown(pool, className, cluster, replicas, pods, settings) {
  const size = sizeOf(pool);
  const counts = cluster.status?.nodes ?? [];
  const present = counts.find((/** @type {any} */ each) => each.pool === pool.name);
  const there = replicas.map((_, at) => at).filter((at) => pods[at].length > 0);
  const occupants = there.map((at, place) => ({
    mark: markOf(place),
    name: fullName(replicas[at]),
    link: workflowLink(settings, "ModelReplica", replicas[at]),
    state: stateOf(replicas[at]),
    pods: pods[at].length,
    gpus: pods[at].reduce((sum, gpus) => sum + gpus, 0),
  }));
  const { nodes, without } = packed(size, there.map((at) => pods[at]));
  const cells = nodes.slice(0, NODES_DRAWN).map((node) => {
    const who = [...new Set(node.map((pod) => pod.who))];
    return {
      marks: who.map((at) => occupants[at].mark),
      names: who.map((at) => occupants[at].name),
      used: node.reduce((sum, pod) => sum + pod.gpus, 0),
    };
  });
  return {
    name: pool.name,
    className,
    ...size,
    present: present ? nodeCounts(present) : "",
    gpusUsed: occupants.reduce((sum, occupant) => sum + occupant.gpus, 0),
    cells,
    notDrawn: size.nodes - cells.length,
    without,
    occupants,
  };
}

/**
 * @param {{total: number, ready: number, schedulable: number}} counts
 * @returns {string}
 */
function nodeCounts({ total, ready, schedulable }) {
  return `${total} nodes exist, ${ready} are Ready, ${schedulable} accept new pods`;
}

/**
 * @param {number} place
 * @returns {string} A to Z, then A2 to Z2 and so on
 */
export function markOf(place) {
  const round = Math.floor(place / 26);
  return String.fromCharCode(65 + (place % 26)) + (round ? String(round + 1) : "");
}
