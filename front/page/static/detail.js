/**
 * The detail view of one object: state, next command, conditions, events, neighbours, YAML.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {Map<string, Map<string, Tree>>} Objects by kind and key
 */

import { age } from "./ages.js";
import { decisionParts, explainedBy } from "./decisions.js";
import { element, link } from "./elements.js";
import { eventsOf } from "./events.js";
import { regionOf } from "./fleet.js";
import { badge, objectLink } from "./rows.js";
import { commandName, conditions, fullName, stateOf, workflowLink } from "./states.js";
import { table } from "./tables.js";
import { queueText, trafficNote, trafficText } from "./traffic.js";
import { endpointsOf, entryText, ownerOf, replicaShown, rolloutOf, teardownOf } from "./workloads.js";
import { yaml } from "./yaml.js";

const PARTS_MAX = 100;

/**
 * @param {string} kind
 * @param {Tree} tree
 * @param {Objects} objects
 * @param {import("./problems.js").Problem | undefined} problem
 * @param {import("./front_data.js").FrontData} front
 * @param {number} now
 * @returns {HTMLElement[]}
 */
export function detail(kind, tree, objects, problem, front, now) {
  const state = stateOf(tree);
  const href = workflowLink(front.settings, kind, tree);
  // A Ready deployment may have a bad rollout, and a Ready cluster a problem at its cloud.
  const why = state.why || (problem?.cause ?? "");
  return [
    element("p", {}, badge(state), ` ${kind} `, ...(href ? [link(href, "workflow", `of ${fullName(tree)} in the Temporal UI`)] : [])),
    why ? element("p", { class: "cause" }, why) : element("p", {}, "No problem is reported."),
    ...commands(kind, tree, problem),
    ...progressParts(tree),
    ...queueParts(kind, tree, front.explained, now),
    ...table("Conditions", ["Type", "Status", "Reason", "Since"], conditions(tree).map((each) => [
      each.type,
      each.status,
      [each.reason, each.message].filter(Boolean).join(": "),
      age(each.lastTransitionTime, now),
    ])),
    ...table("Events", ["Last", "Type", "Event"], eventsOf(kind, tree).map((each) => [
      `${age(each.last, now)} ago`,
      each.type,
      `${each.reason}: ${each.message}${each.count > 1 ? ` (${each.count} times)` : ""}`,
    ])),
    ...decisionParts(kind, tree, front.explained, now),
    ...serviceParts(kind, tree, front.traffic, now),
    ...replicaParts(kind, tree, objects),
    ...neighbours(kind, tree, objects),
    element("h3", {}, "YAML"),
    element("pre", { tabindex: "0", "aria-label": `YAML of ${fullName(tree)}` }, yaml(tree)),
  ];
}

/**
 * @param {string} kind
 * @param {Tree} tree
 * @param {import("./problems.js").Problem | undefined} problem
 * @returns {HTMLElement[]}
 */
function commands(kind, tree, problem) {
  const name = commandName(kind, tree);
  const lines = [
    problem?.command,
    `modelplane describe ${name}`,
    `modelplane events ${name}`,
    ...ofScheduler(kind, tree).map((verb) => `modelplane ${verb}`),
  ];
  const shown = [...new Set(lines.filter(Boolean))];
  const step = problem?.step ? [element("p", {}, `Next: ${problem.step.replaceAll("`", "")}`)] : [];
  return [
    element("h3", {}, "Commands"),
    ...step,
    element("ul", { class: "commands" }, ...shown.map((each) => element("li", {}, element("code", {}, each ?? "")))),
  ];
}

/**
 * @param {string} kind
 * @param {Tree} tree
 * @returns {string[]} the commands that explain its placement, or that of its deployment
 */
function ofScheduler(kind, tree) {
  const owner = explainedBy(kind, tree);
  if (!owner) return [];
  const [namespace, name] = owner.split("/");
  const deployment = commandName("ModelDeployment", { metadata: { namespace, name } });
  return [`explain ${deployment}`, `decisions ${deployment}`];
}

/**
 * @param {Tree} tree
 * @returns {HTMLElement[]} the rollout and the teardown, if one is under way
 */
function progressParts(tree) {
  const shown = [rolloutOf(tree.status?.rollout), teardownOf(tree.status?.teardown)];
  return shown.flatMap((each) => (each ? [progress(each, fullName(tree))] : []));
}

/**
 * @param {string} kind
 * @param {Tree} tree
 * @param {import("./front_data.js").Explained} explained
 * @param {number} now
 * @returns {HTMLElement[]} the queue of a deployment, if autoscalers know it
 */
function queueParts(kind, tree, explained, now) {
  const isOwn = kind === "ModelDeployment" && explained.owner === fullName(tree);
  const text = isOwn ? queueText(explained.metrics, now) : "";
  return text ? [element("p", {}, `Queue: ${text}`)] : [];
}

/**
 * @param {import("./workloads.js").Progress} shown
 * @param {string} of
 * @returns {HTMLElement}
 */
function progress(shown, of) {
  const bar = element("progress", {
    value: String(shown.done),
    max: String(shown.total),
    "aria-label": `${shown.label} of ${of}`,
  });
  return element("p", { class: "progress" }, `${shown.label} `, bar, ` ${shown.text}`);
}

/**
 * @param {string} kind
 * @param {Tree} tree
 * @param {import("./front_data.js").Traffic | null} traffic
 * @param {number} now
 * @returns {HTMLElement[]}
 */
function serviceParts(kind, tree, traffic, now) {
  if (kind !== "ModelService") return [];
  const entries = (tree.status?.entries ?? []).map((/** @type {any} */ each) => element("li", {}, entryText(each)));
  return [
    element("p", {}, `Address: ${tree.status?.address ?? "none yet"}`),
    ...trafficParts(fullName(tree), traffic, now),
    ...table("Traffic by endpoint", ["Endpoint", "Cluster", "Share", "URL"], endpointsOf(tree).map((each) => [
      each.name,
      each.cluster,
      `${each.share}%`,
      each.url,
    ])),
    element("h3", {}, "Entries"),
    element("ul", {}, ...entries),
  ];
}

/**
 * @param {string} name
 * @param {import("./front_data.js").Traffic | null} traffic
 * @param {number} now
 * @returns {HTMLElement[]} the traffic of a service, or why it is unknown
 */
function trafficParts(name, traffic, now) {
  const numbers = traffic?.services?.[name];
  const none = traffic?.configured ? "Prometheus has no numbers of this service; only Envoy counts requests." : "";
  const texts = [trafficText(numbers) || none, trafficNote(traffic, now)].filter(Boolean);
  return texts.map((text) => element("p", {}, text));
}

/**
 * @param {string} kind
 * @param {Tree} tree
 * @param {Objects} objects
 * @returns {Tree[] | null} null for kinds that have no replicas
 */
function replicasOf(kind, tree, objects) {
  const isOf = /** @type {Record<string, (replica: Tree) => boolean>} */ ({
    ModelDeployment: (replica) => ownerOf(replica) === fullName(tree),
    InferenceCluster: (replica) => replica.spec?.clusterName === tree.metadata.name,
  })[kind];
  return isOf ? [...(objects.get("ModelReplica")?.values() ?? [])].filter(isOf) : null;
}

/**
 * @param {string} kind
 * @param {Tree} tree
 * @param {Objects} objects
 * @returns {HTMLElement[]} the replicas of a deployment or a cluster
 */
function replicaParts(kind, tree, objects) {
  const replicas = replicasOf(kind, tree, objects);
  if (!replicas) return [];
  const items = replicas.slice(0, PARTS_MAX).map((replica) => {
    const shown = replicaShown(replica);
    return element(
      "li",
      { "data-key": shown.name },
      objectLink("ModelReplica", replica),
      ` on ${shown.cluster || "no cluster"} `,
      badge(shown.state),
      ...[shown.state.why, ...shown.detail].filter(Boolean).map((text) => element("p", { class: "quiet" }, text)),
      shown.teardown && progress(shown.teardown, shown.name),
    );
  });
  const rest = replicas.length - items.length;
  return [
    element("h3", {}, "Replicas"),
    items.length > 0 ? element("ul", { class: "parts" }, ...items) : element("p", {}, "None."),
    ...(rest > 0 ? [element("p", {}, `and ${rest} more`)] : []),
  ];
}

/**
 * @param {string} kind
 * @param {Tree} tree
 * @param {Objects} objects
 * @returns {HTMLElement[]} links to the objects that this one depends on, or that depend on it
 */
function neighbours(kind, tree, objects) {
  const { namespace = "", name } = tree.metadata;
  /** @type {[string, string][]} */
  const keys = [];
  const cluster = (/** @type {string} */ each) => each && keys.push(["InferenceCluster", `/${each}`]);
  if (kind === "ModelReplica") {
    keys.push(["ModelDeployment", ownerOf(tree)]);
    cluster(tree.spec?.clusterName);
  }
  const own = kind === "ModelDeployment" ? (replicasOf(kind, tree, objects) ?? []) : [];
  for (const replica of own) cluster(replica.spec?.clusterName);
  const placements = tree.status?.endpoints ?? tree.status?.clusters ?? [];
  for (const each of placements) cluster(each.cluster ?? each.name ?? each);
  for (const pool of tree.spec?.nodePools ?? []) keys.push(["InferenceClass", `/${pool.className}`]);
  const cache = tree.spec?.template?.spec?.modelCacheRef?.name ?? tree.spec?.modelCacheRef?.name;
  if (cache) keys.push(["ModelCache", `${namespace}/${cache}`]);
  const names = new Set(own.map((replica) => replica.metadata.name));
  if (kind === "ModelReplica") names.add(name);
  for (const [key, service] of objects.get("ModelService") ?? []) {
    const isHere = service.metadata.namespace === namespace;
    if (isHere && endpointsOf(service).some((each) => names.has(each.name))) keys.push(["ModelService", key]);
  }
  const unique = [...new Map(keys.map((each) => [each.join("\n"), each])).values()];
  const items = unique.flatMap(([each, key]) => {
    const found = objects.get(each)?.get(key);
    return found ? [element("li", {}, `${each} `, objectLink(each, found), " ", badge(stateOf(found)))] : [];
  });
  const region = kind === "InferenceCluster" ? [element("p", {}, `Region: ${regionOf(tree)}`)] : [];
  if (items.length === 0) return region;
  return [...region, element("h3", {}, "Neighbours"), element("ul", { class: "parts" }, ...items.slice(0, PARTS_MAX))];
}
