/**
 * The problems of the fleet, worst first. Objects with the same cause are one problem.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {Record<string, Record<string, string>>} Advice next steps by kind and reason
 * @typedef {{kind: string, tree: Tree, reason: string, message: string, since: string}} Cause
 * @typedef {{key: string, needsPerson: boolean, kind: string, names: string[], reason: string,
 *   cause: string, since: string, step: string, command: string}} Problem
 */

import { isSilent } from "./fleet.js";
import { commandName, condition, conditions, fullName, isReady } from "./states.js";

/** Kinds in the order of their effect: a cluster's problem has more victims than a cache's. */
const ORDER = [
  "InferenceGateway",
  "InferenceCluster",
  "ModelService",
  "ModelDeployment",
  "ModelReplica",
  "ModelCache",
  "ModelEndpoint",
  "InferenceClass",
];
// The control plane goes on by itself when these end. They need a person if they last.
const PASSING = [
  "ClusterUnreachable",
  "Hydrating",
  "ModelStarting",
  "WaitingForBackend",
  "WaitingForCache",
  "WaitingForCluster",
  "WaitingForGateway",
];
const LASTING_MS = 30 * 60_000;
// An object that another one names may be applied a moment later.
const ABSENT_MS = 60_000;
const ABSENT = /does not exist/;
// The causes of other conditions of the same object.
const ROOTS = ["Unresolved"];
const DELETION_BLOCKED = "DeletionBlocked";
// The words of Kubernetes for pods that do not start, and that no waiting repairs.
const FAILING = /CrashLoopBackOff|ErrImagePull|ImagePullBackOff|InvalidImageName|OOMKilled/;
const MESSAGE_CHARACTERS = 220;

/**
 * @param {Map<string, Map<string, Tree>>} objects by kind
 * @param {Advice} advice
 * @param {number} now milliseconds since 1970
 * @returns {Problem[]}
 */
export function problemsShown(objects, advice, now) {
  /** @type {Map<string, {needsPerson: boolean, causes: Cause[], step: string}>} */
  const grouped = new Map();
  const unwell = unwellReplicas(objects);
  for (const kind of ORDER) {
    for (const tree of objects.get(kind)?.values() ?? []) {
      const cause = causeOf(kind, tree, unwell, objects, now);
      if (!cause) continue;
      const { step, needsPerson } = stepOf(cause, tree, advice, now);
      const key = [cause.kind, cause.reason, cause.message, needsPerson].join("\n");
      const group = grouped.get(key);
      if (group) group.causes.push(cause);
      else grouped.set(key, { needsPerson, causes: [cause], step });
    }
  }
  return [...grouped.entries()]
    .map(([key, group]) => problem(key, group))
    .sort((a, b) => rank(a) - rank(b) || (a.since < b.since ? -1 : 1));
}

/**
 * Returns the problems of the control plane itself, which stop every change.
 *
 * @param {import("./overview.js").FrontState | null} state
 * @returns {Problem[]}
 */
export function controlPlaneProblems(state) {
  const found = /** @type {[string, boolean, number, string, string, string][]} */ ([
    [
      "Temporal",
      state?.temporal.silent,
      state?.temporal.answered,
      "Temporal does not answer; models keep serving, and nothing is placed, scaled or repaired",
      "check Temporal and its database; on a local fleet: ",
      "modelplane up",
    ],
    [
      "Workers",
      state?.workers.silent && !state.temporal.silent,
      state?.workers.polled,
      "no worker takes work; models keep serving, and changes wait",
      "start a worker, or see its log: ",
      "modelplane workers status",
    ],
  ]);
  return found
    .filter(([, isSilent]) => isSilent)
    .map(([kind, , since, cause, step, command]) => ({
      key: kind,
      needsPerson: true,
      kind,
      names: [],
      reason: "Silent",
      cause,
      since: new Date(since || 0).toISOString(),
      step: `${step}\`${command}\``,
      command,
    }));
}

/**
 * @param {Problem} shown
 * @returns {number}
 */
function rank(shown) {
  return (shown.needsPerson ? 0 : ORDER.length) + ORDER.indexOf(shown.kind);
}

/**
 * @param {string} key
 * @param {{needsPerson: boolean, causes: Cause[], step: string}} group
 * @returns {Problem}
 */
function problem(key, { needsPerson, causes, step }) {
  const [first] = causes;
  const commands = [...step.matchAll(/`(modelplane [^`]*)`/g)].map((match) => match[1]);
  return {
    key,
    needsPerson,
    kind: first.kind,
    names: causes.map((each) => fullName(each.tree)).sort(),
    reason: first.reason,
    cause: sentence(why(first)) || first.reason,
    since: causes.map((each) => each.since).filter(Boolean).sort()[0] ?? "",
    step,
    command: commands[0] ?? `modelplane describe ${commandName(first.kind, first.tree)}`,
  };
}

/**
 * @param {Cause} cause
 * @returns {string} the message, without the count that precedes the reasons of a wait
 */
function why({ reason, message }) {
  const count = /^\d+ of \d+ replicas scheduled \(checked \d+ clusters\)\. (?=\S)/;
  return reason === "InsufficientCapacity" ? message.replace(count, "") : message;
}

/**
 * @param {string} message
 * @returns {string} its first sentence, shortened
 */
export function sentence(message) {
  const first = message.split(/(?<=[.;!?])\s+(?=\S)/)[0].replace(/[.;]$/, "");
  if (first.length <= MESSAGE_CHARACTERS) return first;
  return `${first.slice(0, MESSAGE_CHARACTERS).trimEnd()}…`;
}

/**
 * Returns the replicas that are not Ready, by deployment. Replicas on silent clusters are
 * left out: the problem of their cluster explains them.
 *
 * @param {Map<string, Map<string, Tree>>} objects
 * @returns {Map<string, Tree[]>}
 */
function unwellReplicas(objects) {
  /** @type {Map<string, Tree[]>} */
  const found = new Map();
  for (const replica of objects.get("ModelReplica")?.values() ?? []) {
    if (isReady(replica)) continue;
    const cluster = objects.get("InferenceCluster")?.get(`/${replica.spec?.clusterName}`);
    if (cluster && isSilent(cluster)) continue;
    const metadata = /** @type {any} */ (replica.metadata);
    const owner = `${metadata.namespace}/${metadata.labels?.["modelplane.ai/deployment"] ?? ""}`;
    found.set(owner, [...(found.get(owner) ?? []), replica]);
  }
  return found;
}

/**
 * @param {string} kind
 * @param {Tree} tree
 * @param {Map<string, Tree[]>} unwell
 * @param {Map<string, Map<string, Tree>>} objects
 * @param {number} now
 * @returns {Cause | null}
 */
function causeOf(kind, tree, unwell, objects, now) {
  const from = (/** @type {any} */ each) => ({
    kind,
    tree,
    reason: each?.reason ?? "Unknown",
    message: each?.message || "it has no condition Ready yet",
    since: each?.lastTransitionTime ?? /** @type {any} */ (tree.metadata).creationTimestamp ?? "",
  });
  if (tree.metadata.deletionTimestamp) return ofDeletion(from, tree, now);
  if (kind === "ModelReplica") {
    // The deployment of a replica shows its problem.
    const owner = /** @type {any} */ (tree.metadata).labels?.["modelplane.ai/deployment"];
    const isOwned = objects.get("ModelDeployment")?.has(`${tree.metadata.namespace}/${owner}`);
    return isReady(tree) || isOwned ? null : from(condition(tree, "Ready"));
  }
  const calls = ["CallsAccepted", "SignalsDelivered"].map((type) => condition(tree, type));
  const refused = calls.find((each) => each && each.status !== "True");
  if (refused) return from(refused);
  if (kind === "ModelDeployment") return ofDeployment(tree, unwell.get(fullName(tree)) ?? [], from);
  if (!isReady(tree)) return from(deeper(tree));
  const cloud = condition(tree, "CloudObjectsReady");
  return cloud?.status === "False" ? from(cloud) : null;
}

/**
 * Returns the condition that explains why an object is not Ready: the one that Ready quotes as
 * `REASON: MESSAGE`, or Ready itself, or the first other unmet condition if it has no message.
 *
 * @param {Tree} tree
 * @returns {any}
 */
function deeper(tree) {
  const ready = condition(tree, "Ready");
  const unmet = conditions(tree).filter(
    (each) => each.type !== "Ready" && each.status !== "True" && each.message,
  );
  const exact =
    unmet.find((each) => ROOTS.includes(each.reason)) ??
    unmet.find((each) => ready?.message?.startsWith(`${each.reason}: `));
  return exact ?? (ready?.message ? ready : (unmet[0] ?? ready));
}

/**
 * @param {(condition: any) => Cause} from
 * @param {Tree} tree
 * @param {number} now
 * @returns {Cause | null} a cause if the deletion cannot go on
 */
function ofDeletion(from, tree, now) {
  const leaving = condition(tree, "Deleting");
  if (leaving?.reason === DELETION_BLOCKED) return from(leaving);
  const { problem: text, since, waitingFor = [] } = tree.status?.teardown ?? {};
  const waits = waitingFor.map((/** @type {any} */ each) => `${each.object} (${each.why})`);
  const isLate = waits.length > 0 && now - Date.parse(since) > LASTING_MS;
  if (!text && !isLate) return null;
  const message = text || `the deletion waits for ${waits.join(", ")}`;
  return from({ reason: DELETION_BLOCKED, message, lastTransitionTime: since });
}

/**
 * Returns the cause of the worst replica, which is more exact than the deployment's own.
 *
 * @param {Tree} tree
 * @param {Tree[]} unwell its replicas that are not Ready
 * @param {(condition: any) => Cause} from
 * @returns {Cause | null}
 */
function ofDeployment(tree, unwell, from) {
  for (const replica of unwell) {
    const engines = replica.status?.engines ?? [];
    const failing = engines.find((/** @type {any} */ each) => FAILING.test(each.message ?? ""));
    const ready = condition(replica, "Ready");
    const message = failing?.message ?? (FAILING.test(ready?.message ?? "") ? ready?.message : "");
    if (!message) continue;
    const reason = tree.status?.rollout?.revisions?.length > 0 ? "BadRollout" : "PodsFail";
    return from({ ...ready, reason, message: `${fullName(replica)}: ${message}` });
  }
  if (isReady(tree)) return null;
  const own = condition(tree, "Ready");
  const exact = conditions(tree).find(
    (each) => each.status === "False" && each.type === "ReplicasScheduled" && each.message,
  );
  const worst = unwell.map((replica) => condition(replica, "Ready")).find((each) => each?.message);
  const isVague = ["ModelStarting", "Unavailable"].includes(own?.reason ?? "");
  return from(exact ?? (isVague && worst ? worst : own));
}

/**
 * @param {Cause} cause
 * @param {Tree} tree
 * @param {Advice} advice
 * @param {number} now
 * @returns {{step: string, needsPerson: boolean}}
 */
function stepOf(cause, tree, advice, now) {
  const command = commandName(cause.kind, tree);
  const clouds = (tree.status?.cloudObjects ?? []).map((/** @type {any} */ each) => each.nextStep);
  const ofCloud = clouds.find((/** @type {string} */ each) => each && !each.startsWith("none"));
  const steps = {
    BadRollout: `\`modelplane rollout undo ${command}\` restores the earlier template`,
    PodsFail: `correct the template; \`modelplane describe ${command}\` shows the pods`,
    InsufficientCapacity: `\`modelplane explain ${command}\` shows what each cluster lacks`,
    DeletionBlocked: `remove the obstacle, then \`modelplane retry ${command}\``,
  };
  const own = /** @type {Record<string, string>} */ (steps)[cause.reason];
  const known = own ?? advice[cause.kind]?.[cause.reason] ?? advice.ModelReplica?.[cause.reason];
  const step = ofCloud ?? known ?? advice.all?.[cause.reason] ?? "";
  const isPassing = PASSING.includes(cause.reason);
  const patience = ABSENT.test(cause.message) ? ABSENT_MS : LASTING_MS;
  const lasts = now - Date.parse(cause.since) > patience;
  return {
    step: step
      .replaceAll("{command}", command)
      .replaceAll("{name}", tree.metadata.name)
      .replaceAll("{namespace}", tree.metadata.namespace ?? "")
      .replaceAll("{credential}", "the Secret that the message names"),
    needsPerson: (step !== "" && !isPassing) || tree.status?.phase === "Failed" || lasts,
  };
}
