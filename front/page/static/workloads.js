/**
 * The content of the cards of deployments with their replicas, and of services.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {import("./states.js").State} State
 * @typedef {{temporalUi: string, temporalNamespace: string}} Settings
 * @typedef {{label: string, done: number, total: number, text: string}} Progress
 * @typedef {{name: string, link: string, cluster: string, state: State, detail: string[],
 *   teardown: Progress | null}} Replica
 * @typedef {{key: string, name: string, link: string, state: State,
 *   notes: {type: string, text: string}[], counts: string, rollout: Progress | null,
 *   replicas: Replica[]}} Deployment
 * @typedef {{name: string, text: string}} Endpoint
 * @typedef {{key: string, name: string, link: string, state: State,
 *   notes: {type: string, text: string}[], address: string, entries: string[],
 *   endpoints: Endpoint[]}} Service
 */

import { byName } from "./clusters.js";
import { fullName, notes, stateOf, workflowLink } from "./states.js";

const DEPLOYMENT_LABEL = "modelplane.ai/deployment";

/**
 * @param {Map<string, Tree>} deployments
 * @param {Map<string, Tree>} replicas
 * @param {Settings} settings
 * @returns {Deployment[]} by name, then placeholders for replicas whose deployment is unknown
 */
export function deploymentsShown(deployments, replicas, settings) {
  /** @type {Map<string, Tree[]>} */
  const owned = new Map();
  for (const replica of [...replicas.values()].sort(byName)) {
    const owner = ownerOf(replica);
    owned.set(owner, [...(owned.get(owner) ?? []), replica]);
  }
  const ownedBy = (/** @type {string} */ name) => owned.get(name) ?? [];
  const shown = [...deployments.values()]
    .sort(byName)
    .map((tree) => deploymentShown(tree, ownedBy(fullName(tree)), settings));
  const known = new Set(shown.map((each) => each.name));
  const others = [...owned.keys()].filter((owner) => !known.has(owner)).sort();
  return [...shown, ...others.map((owner) => withoutDeployment(owner, ownedBy(owner), settings))];
}

/**
 * @param {Tree} replica
 * @returns {string} the full name of its deployment
 */
function ownerOf(replica) {
  const metadata = /** @type {any} */ (replica.metadata);
  const name = metadata.labels?.[DEPLOYMENT_LABEL] ?? metadata.ownerReferences?.[0]?.name ?? "";
  return `${metadata.namespace ?? ""}/${name}`;
}

/**
 * @param {Tree} tree
 * @param {Tree[]} replicas
 * @param {Settings} settings
 * @returns {Deployment}
 */
function deploymentShown(tree, replicas, settings) {
  const { ready = 0, total = 0 } = tree.status?.replicas ?? {};
  return {
    key: fullName(tree),
    name: fullName(tree),
    link: workflowLink(settings, "ModelDeployment", tree),
    state: stateOf(tree),
    notes: notes(tree),
    counts: `${ready} of ${tree.spec?.replicas ?? 0} replicas Ready, ${total} placed`,
    rollout: rolloutOf(tree.status?.rollout),
    replicas: replicas.map((replica) => replicaShown(replica, settings)),
  };
}

/**
 * @param {string} owner
 * @param {Tree[]} replicas
 * @param {Settings} settings
 * @returns {Deployment}
 */
function withoutDeployment(owner, replicas, settings) {
  return {
    key: `without ${owner}`,
    name: owner,
    link: "",
    state: {
      sort: "waiting",
      word: "Not shown",
      why: "its replicas are known, but the deployment itself was not read",
    },
    notes: [],
    counts: `${replicas.length} placed`,
    rollout: null,
    replicas: replicas.map((replica) => replicaShown(replica, settings)),
  };
}

/**
 * @param {any} rollout
 * @returns {Progress | null} null if the rollout is complete
 */
function rolloutOf(rollout) {
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
 * @param {Settings} settings
 * @returns {Replica}
 */
function replicaShown(tree, settings) {
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
    link: workflowLink(settings, "ModelReplica", tree),
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
function teardownOf(teardown) {
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
 * @param {Map<string, Tree>} services
 * @param {Settings} settings
 * @returns {Service[]} by name
 */
export function servicesShown(services, settings) {
  return [...services.values()].sort(byName).map((tree) => ({
    key: fullName(tree),
    name: fullName(tree),
    link: workflowLink(settings, "ModelService", tree),
    state: stateOf(tree),
    notes: notes(tree),
    address: tree.status?.address ?? "",
    entries: (tree.status?.entries ?? []).map(entryText),
    endpoints: (tree.status?.endpoints ?? []).map((/** @type {any} */ each) => ({
      name: each.name,
      text: [each.cluster && `on ${each.cluster}`, `weight ${each.weight ?? 1}`, each.url]
        .filter(Boolean)
        .join(", "),
    })),
  }));
}

/**
 * @param {any} entry
 * @returns {string}
 */
function entryText(entry) {
  const { weight = 1, priority = 0, routed = 0, ready = 0, matched = 0 } = entry;
  const counts = `${routed} routed, ${ready} of ${matched} Ready`;
  const standby = entry.standby ? ", standby" : "";
  return `${entry.name} (weight ${weight}, priority ${priority}: ${counts}${standby})`;
}
