/**
 * The explanation of placements in the detail view, as `modelplane explain` prints it.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {import("./front_data.js").Explained} Explained
 */

import { age } from "./ages.js";
import { element } from "./elements.js";
import { ownerOf } from "./workloads.js";
import { fullName } from "./states.js";
import { table } from "./tables.js";

const CLUSTERS_MAX = 100;

/**
 * @param {string} kind
 * @param {Tree | undefined} tree
 * @returns {string} the full name of the deployment that explains an object; empty for none
 */
export function explainedBy(kind, tree) {
  if (!tree || tree.metadata.deletionTimestamp) return "";
  if (kind === "ModelDeployment") return fullName(tree);
  const owner = kind === "ModelReplica" ? ownerOf(tree) : "";
  return owner.endsWith("/") ? "" : owner;
}

/**
 * @param {string} kind
 * @param {Tree} tree
 * @param {Explained} explained
 * @param {number} now
 * @returns {HTMLElement[]} empty for kinds that the scheduler does not place
 */
export function decisionParts(kind, tree, explained, now) {
  const owner = explainedBy(kind, tree);
  if (!owner || explained.owner !== owner) return [];
  const title = element("h3", {}, "Decisions of the scheduler");
  const { tree: found, problem } = explained;
  if (!found) return [title, element("p", { class: "quiet" }, problem ? `Not explained: ${problem}.` : "Not loaded yet.")];
  const isReplica = kind === "ModelReplica";
  const replicas = found.replicas.filter((/** @type {any} */ each) => !isReplica || each.replica === tree.metadata.name);
  const read = `As of ${age(found.at, now)} ago${problem ? `; not read again: ${problem}` : ""}.`;
  return [
    title,
    element("p", { class: "quiet" }, read),
    ...(found.shortfall > 0 && !isReplica ? waiting(found) : []),
    ...found.warnings.map((/** @type {string} */ each) => element("p", {}, `Warning: ${each}`)),
    ...table("Why there", ["Replica", "Cluster", "Pools", "Action", "Reason"], replicas.map((/** @type {any} */ each) => [
      each.replica,
      each.cluster,
      each.engines.map((/** @type {any} */ engine) => `${engine.name}: ${engine.pool} x${engine.nodes}`).join(", "),
      each.action,
      each.why,
    ])),
    ...(isReplica ? [] : evictions(found)),
    ...(isReplica || found.shortfall === 0 ? [] : clusters(found)),
  ];
}

/**
 * @param {any} found
 * @returns {HTMLElement[]}
 */
function waiting(found) {
  const noun = found.shortfall === 1 ? "replica waits" : "replicas wait";
  const steps = found.suggestions.map((/** @type {any} */ each) => element("li", {}, each.text));
  return [
    element("p", { class: "cause" }, `${found.shortfall} ${noun}: ${found.message}`),
    ...(steps.length > 0 ? [element("p", {}, "One of these changes would place one more replica:"), element("ul", {}, ...steps)] : []),
  ];
}

/**
 * @param {any} found
 * @returns {HTMLElement[]}
 */
function evictions(found) {
  return table("Would be evicted now", ["Replica", "Cluster", "Reason"], found.evictions.map((/** @type {any} */ each) => [
    each.replica,
    each.cluster,
    [each.reason, each.detail].filter(Boolean).join(": "),
  ]));
}

/**
 * @param {any} found
 * @returns {HTMLElement[]} why each cluster does not fit one more replica, with its pools
 */
function clusters(found) {
  const rows = Object.entries(found.clusters).flatMap(([name, each]) => {
    const pools = Object.entries(each.pools).filter(([, pool]) => pool.reason);
    return [
      [name, "", each.reason || "fits", each.detail],
      ...pools.map(([pool, { reason, detail }]) => [name, pool, reason, detail]),
    ];
  });
  const left = rows.length > CLUSTERS_MAX || found.clustersAfter;
  return [
    ...table("Why not elsewhere", ["Cluster", "Pool", "Reason", "Detail"], rows.slice(0, CLUSTERS_MAX)),
    ...(left ? [element("p", { class: "quiet" }, "The command above shows all clusters.")] : []),
  ];
}
