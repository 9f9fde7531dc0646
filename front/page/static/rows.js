/**
 * Renders rows: a problem, a region, a pool, a deployment, a service, and every other object.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {import("./states.js").State} State
 * @typedef {import("./fleet.js").Cluster} Cluster
 * @typedef {import("./fleet.js").Region} Region
 * @typedef {import("./problems.js").Problem} Problem
 */

import { lasting, age } from "./ages.js";
import { chargeText, total } from "./capacity.js";
import { cells, nodesPerCell } from "./drawings.js";
import { element, spoken } from "./elements.js";
import { fragmentOf } from "./location.js";
import { condition, fullName, stateOf } from "./states.js";
import { deploymentFacts, serviceFacts, otherFacts } from "./workloads.js";

const SIGNS = { ready: "✓", waiting: "…", failed: "✕", deleting: "⌫", draining: "⇥", silent: "?" };
const NAMES_MAX = 4;

/**
 * @param {string} kind
 * @param {Tree} tree
 * @param {string} text
 * @returns {HTMLElement} a link to the object's detail view
 */
export function objectLink(kind, tree, text = fullName(tree)) {
  const { namespace = "", name } = tree.metadata;
  const view = { opened: { kind, namespace, name }, search: "", unready: false };
  return element("a", { class: "object", href: fragmentOf(view) }, text);
}

/**
 * @param {State | {sort: string, word: string}} state
 * @returns {HTMLElement}
 */
export function badge(state) {
  const sign = /** @type {Record<string, string>} */ (SIGNS)[state.sort];
  return element(
    "span",
    { class: `state ${state.sort}` },
    element("span", { "aria-hidden": "true" }, `${sign} `),
    state.word,
  );
}

/**
 * @param {Problem} shown
 * @param {(name: string) => Tree | undefined} find an object by its full name
 * @param {number} now
 * @returns {HTMLElement}
 */
export function problemRow(shown, find, now) {
  const named = shown.names.slice(0, NAMES_MAX).flatMap((name, at) => {
    const tree = find(name);
    return [at ? ", " : "", tree ? objectLink(shown.kind, tree) : name];
  });
  const more = shown.names.length - NAMES_MAX;
  const isPerson = shown.needsPerson;
  return element(
    "li",
    { class: `problem ${isPerson ? "person" : "waits"}`, "data-key": shown.key },
    element(
      "p",
      { class: "problem-head" },
      element("strong", { class: "urgency" }, isPerson ? "Act" : "Waits"),
      ` ${shown.kind} `,
      ...named,
      more > 0 ? ` and ${more} more` : "",
      element("span", { class: "quiet" }, ` ${shown.reason} ${lasting(shown.since, now)}`),
    ),
    element("p", { class: "cause" }, shown.cause),
    element("p", { class: "next" }, ...stepParts(shown)),
  );
}

/**
 * @param {Problem} shown
 * @returns {(Node | string)[]} the next step, with its commands as code
 */
function stepParts(shown) {
  const parts = shown.step
    .split("`")
    .map((text, at) => (at % 2 ? element("code", {}, text) : text))
    .filter((part) => part !== "");
  if (shown.step.includes(shown.command)) return parts;
  return [...parts, shown.step ? "; " : "", element("code", {}, shown.command)];
}

/**
 * @param {Region} region
 * @param {boolean} isOpen
 * @returns {HTMLElement}
 */
export function regionRow(region, isOpen) {
  const count = region.clusters.length;
  const unready = region.notReady ? `, ${region.notReady} not Ready` : "";
  return element(
    "li",
    { class: "row region" },
    element(
      "button",
      { type: "button", class: "toggle", "aria-expanded": String(isOpen), "data-region": region.name },
      element("span", { "aria-hidden": "true" }, isOpen ? "▾ " : "▸ "),
      region.name,
    ),
    element("span", { class: "quiet count" }, `${count} ${count === 1 ? "cluster" : "clusters"}${unready}`),
    total(region.charge) > 0
      ? cells(region.charge, `Region ${region.name}`)
      : cells(region.devices, `Region ${region.name}`, "devices"),
    element("span", { class: "sums" }, regionText(region)),
  );
}

/**
 * @param {Region} region
 * @returns {string} the sums of its pools; devices only if a pool is charged in devices
 */
export function regionText(region) {
  const { charge, devices } = region;
  if (total(devices) === 0) return chargeText(charge) + scale(charge, "nodes");
  const nodes = total(charge) > 0 ? `nodes: ${chargeText(charge)}${scale(charge, "nodes")}; ` : "";
  return `${nodes}devices: ${chargeText(devices)}`;
}

/**
 * @param {import("./capacity.js").Charge} charge
 * @param {import("./capacity.js").Unit} unit
 * @returns {string} the scale of its drawing, if a cell is more than one
 */
function scale(charge, unit) {
  const per = nodesPerCell(charge);
  return per > 1 ? ` (a cell is ${per} ${unit})` : "";
}

/**
 * @param {Cluster} cluster
 * @returns {State | {sort: string, word: string}}
 */
function clusterState(cluster) {
  if (cluster.closed === "silent") return { sort: "silent", word: "Silent" };
  const isCordoned = condition(cluster.tree, "SchedulingDisabled")?.reason;
  if (cluster.closed === "draining" && isCordoned) return { sort: "draining", word: isCordoned };
  return cluster.state;
}

/**
 * @param {Cluster} cluster
 * @param {number} at the place of the pool
 * @param {number} now
 * @returns {HTMLElement}
 */
export function poolRow(cluster, at, now) {
  const pool = cluster.pools[at];
  const state = clusterState(cluster);
  const isOld = cluster.closed === "silent";
  const since = state.sort === "ready" ? "" : lasting(cluster.since, now);
  const title = pool ? `Pool ${pool.name} of ${cluster.name}` : "";
  return element(
    "li",
    { class: `row pool${isOld ? " old" : ""}` },
    element(
      "span",
      { class: "who" },
      objectLink("InferenceCluster", cluster.tree),
      " ",
      badge(state),
      since ? element("span", { class: "quiet" }, ` ${since}`) : null,
    ),
    element("span", { class: "quiet count" }, pool ? `${pool.name} ${pool.className}` : "no pool yet"),
    pool ? cells(pool.charge, title, pool.unit) : element("span", {}),
    element(
      "span",
      { class: "sums" },
      pool ? chargeText(pool.charge) + (pool.unit === "devices" ? " devices" : "") + scale(pool.charge, pool.unit) : "",
      isOld ? " (last known)" : "",
      pool && pool.facts.length > 0 ? `; ${pool.facts.join("; ")}` : "",
    ),
  );
}

/**
 * @param {string} kind
 * @param {Tree} tree
 * @param {Tree[]} replicas of a deployment; empty for other kinds
 * @param {import("./traffic.js").Numbers | undefined} numbers the traffic of a service
 * @param {number} now
 * @returns {HTMLElement}
 */
export function objectRow(kind, tree, replicas, numbers, now) {
  const state = stateOf(tree);
  const since = state.sort === "ready" ? "" : lasting(condition(tree, "Ready")?.lastTransitionTime, now);
  const facts = kind === "ModelDeployment" ? deploymentFacts(tree, replicas) : otherRow(kind, tree, numbers);
  return element(
    "li",
    { class: "row" },
    element(
      "span",
      { class: "who" },
      objectLink(kind, tree),
      spoken(` ${kind}`),
      " ",
      badge(state),
      since ? element("span", { class: "quiet" }, ` ${since}`) : null,
    ),
    element("span", { class: "quiet what", title: facts }, facts),
  );
}

/**
 * @param {string} kind
 * @param {Tree} tree
 * @param {import("./traffic.js").Numbers | undefined} numbers
 * @returns {string}
 */
function otherRow(kind, tree, numbers) {
  return kind === "ModelService" ? serviceFacts(tree, numbers) : otherFacts(kind, tree);
}

/**
 * @param {import("./quotas.js").QuotaRow} shown
 * @returns {HTMLElement}
 */
export function quotaRow(shown) {
  return element(
    "li",
    { class: "row" },
    element(
      "span",
      { class: "who" },
      element("strong", {}, shown.name),
      " ",
      shown.word ? badge({ sort: "waiting", word: shown.word }) : null,
      " ",
      element("code", {}, shown.command),
    ),
    element("span", { class: "quiet what", title: shown.facts }, shown.facts),
  );
}

/**
 * @param {import("./events.js").FleetEvent} event
 * @param {number} now
 * @returns {HTMLElement}
 */
export function eventRow(event, now) {
  const times = event.count > 1 ? ` (${event.count} times)` : "";
  return element(
    "li",
    { class: `row event ${event.type === "Warning" ? "warning" : ""}` },
    element(
      "span",
      { class: "who" },
      element("span", { class: "quiet" }, `${age(event.last, now)} ago `),
      event.type === "Warning" ? element("strong", {}, "Warning ") : null,
      objectLink(event.kind, event.tree),
    ),
    element("span", { class: "quiet what", title: event.message }, `${event.reason}: ${event.message}${times}`),
  );
}
