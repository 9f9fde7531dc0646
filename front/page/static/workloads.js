/**
 * The facts about deployments with their replicas, services and other objects.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {import("./states.js").State} State
 * @typedef {{label: string, done: number, total: number, text: string}} Progress
 * @typedef {{name: string, cluster: string, state: State, detail: string[],
 *   teardown: Progress | null}} Replica
 */

import { fullName, notes, stateOf } from "./states.js";
import { trafficText } from "./traffic.js";

const DEPLOYMENT_LABEL = "modelplane.ai/deployment";

/**
 * @param {Map<string, Tree>} replicas
 * @returns {Map<string, Tree[]>} by the full name of their deployment
 */
export function byDeployment(replicas) {
  /** @type {Map<string, Tree[]>} */
  const owned = new Map();
  for (const replica of replicas.values()) {
    const owner = ownerOf(replica);
    const others = owned.get(owner);
    if (others) others.push(replica);
    else owned.set(owner, [replica]);
  }
  return owned;
}

/**
 * @param {Tree} replica
 * @returns {string} the full name of its deployment
 */
export function ownerOf(replica) {
  const metadata = /** @type {any} */ (replica.metadata);
  const name = metadata.labels?.[DEPLOYMENT_LABEL] ?? metadata.ownerReferences?.[0]?.name ?? "";
  return `${metadata.namespace ?? ""}/${name}`;
}

/**
 * @param {Tree} tree
 * @param {Tree[]} replicas
 * @returns {string} its replicas, their clusters, the rollout and the reason of a wait
 */
export function deploymentFacts(tree, replicas) {
  const { ready = 0, total = 0 } = tree.status?.replicas ?? {};
  /** @type {Map<string, number>} */
  const clusters = new Map();
  for (const replica of replicas) {
    const name = replica.spec?.clusterName ?? "";
    clusters.set(name, (clusters.get(name) ?? 0) + 1);
  }
  const places = [...clusters].sort().map(([name, count]) => `${name} (${count})`);
  const state = stateOf(tree);
  return [
    `${ready} of ${tree.spec?.replicas ?? 0} replicas Ready, ${total} placed`,
    places.length > 0 ? `on ${places.join(", ")}` : "",
    rolloutOf(tree.status?.rollout)?.text ?? "",
    state.sort === "ready" ? "" : state.why,
  ]
    .filter(Boolean)
    .join("; ");
}

/**
 * @param {any} rollout
 * @returns {Progress | null} null if the rollout is complete
 */
export function rolloutOf(rollout) {
  if (!rollout || !(rollout.total > 0)) return null;
  const done = rollout.updatedReady ?? 0;
  const waits = (rollout.pending ?? []).join(", ");
  if (done >= rollout.total && !rollout.paused && !waits) return null;
  const updated = `${rollout.updated ?? 0} of ${rollout.total}`;
  const parts = [
    `${updated} replicas have the newest template, ${done} of them are Ready`,
    rollout.paused ? "paused" : "",
    waits ? `waits for a restart: ${waits}` : "",
  ];
  return {
    label: "Rollout",
    done: Math.min(done, rollout.total),
    total: rollout.total,
    text: parts.filter(Boolean).join("; "),
  };
}

/**
 * @param {Tree} tree
 * @returns {Replica}
 */
export function replicaShown(tree) {
  const engines = tree.status?.engines ?? [];
  const detail = [
    ...notes(tree).map((note) => `${note.type}: ${note.text}`),
    ...engines
      .filter((/** @type {any} */ engine) => engine.message)
      .map((/** @type {any} */ engine) => `engine ${engine.name}: ${engine.message}`),
  ];
  const url = tree.status?.routing?.url;
  return {
    name: fullName(tree),
    cluster: tree.spec?.clusterName ?? "",
    state: stateOf(tree),
    detail: url ? [`serves at ${url}`, ...detail] : detail,
    teardown: teardownOf(tree.status?.teardown),
  };
}

/**
 * @param {any} teardown
 * @returns {Progress | null}
 */
export function teardownOf(teardown) {
  if (!teardown) return null;
  const steps = teardown.steps ?? [];
  const at = steps.findIndex((/** @type {any} */ step) => step.number === teardown.step);
  const current = steps[at];
  const waits = (teardown.waitingFor ?? []).map((/** @type {any} */ each) =>
    each.why ? `${each.object} (${each.why})` : each.object,
  );
  const title = current?.title || current?.state;
  const parts = [
    current ? `step ${at + 1} of ${steps.length}: ${title}` : `step ${teardown.step}`,
    teardown.since ? `since ${teardown.since}` : "",
    waits.length > 0 ? `waits for ${waits.join(", ")}` : "",
    teardown.problem ? `problem: ${teardown.problem}` : "",
  ];
  return {
    label: "Teardown",
    done: Math.max(at, 0),
    total: Math.max(steps.length, 1),
    text: parts.filter(Boolean).join("; "),
  };
}

/**
 * @param {Tree} tree a service
 * @returns {{name: string, cluster: string, share: number, url: string, entry: string}[]} the
 *   endpoints that receive requests, with their shares in percent
 */
export function endpointsOf(tree) {
  const endpoints = tree.status?.endpoints ?? [];
  const weights = endpoints.reduce((/** @type {number} */ sum, /** @type {any} */ each) => {
    return sum + (each.weight ?? 1);
  }, 0);
  return endpoints.map((/** @type {any} */ each) => ({
    name: each.name ?? "",
    cluster: each.cluster ?? "",
    share: weights > 0 ? Math.round((100 * (each.weight ?? 1)) / weights) : 0,
    url: each.url ?? "",
    entry: each.entry ?? "",
  }));
}

/**
 * @param {Tree} tree
 * @param {import("./traffic.js").Numbers | undefined} numbers its traffic, if it is known
 * @returns {string} traffic, the endpoints with their shares of requests, and endpoints left out
 */
export function serviceFacts(tree, numbers) {
  const endpoints = endpointsOf(tree);
  const entries = tree.status?.entries ?? [];
  const matched = entries.reduce((/** @type {number} */ sum, /** @type {any} */ each) => {
    return sum + (each.matched ?? 0);
  }, 0);
  const state = stateOf(tree);
  const shares = endpoints.map((each) => `${each.name} ${each.share}%`).join(", ");
  return [
    trafficText(numbers),
    endpoints.length > 0 ? `${endpoints.length} of ${matched} endpoints: ${shares}` : "no endpoint receives requests",
    state.sort === "ready" ? "" : state.why,
    tree.status?.address ?? "",
  ]
    .filter(Boolean)
    .join("; ");
}

/**
 * @param {any} entry an entry of a service's status
 * @returns {string}
 */
export function entryText(entry) {
  const { weight = 1, priority = 0, routed = 0, ready = 0, matched = 0 } = entry;
  const counts = `${routed} routed, ${ready} of ${matched} Ready`;
  const standby = entry.standby ? ", standby" : "";
  return `${entry.name} (weight ${weight}, priority ${priority}: ${counts}${standby})`;
}

/**
 * @param {string} kind
 * @param {Tree} tree
 * @returns {string}
 */
export function otherFacts(kind, tree) {
  const { spec, status } = tree;
  const state = stateOf(tree);
  const facts = /** @type {Record<string, (string | undefined)[]>} */ ({
    ModelCache: [`on ${status?.summary?.ready ?? "0/0"} clusters`, status?.resolvedRevision],
    InferenceClass: [`used by ${(status?.clusters ?? []).length} clusters`],
    InferenceGateway: [spec?.backend, status?.address],
    ModelEndpoint: [spec?.url],
    ModelReplica: [spec?.clusterName && `on ${spec.clusterName}`],
  });
  return [...(facts[kind] ?? []), state.sort === "ready" ? "" : state.why].filter(Boolean).join("; ");
}
