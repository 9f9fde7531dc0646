/**
 * Describes the state of an object in words.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {"ready" | "waiting" | "failed" | "deleting"} Sort
 * @typedef {{sort: Sort, word: string, why: string}} State `why`: the reason if it is not Ready
 * @typedef {{type: string, status: string, reason: string, message: string,
 *   lastTransitionTime: string}} Condition
 */

/** The short names of kinds, as commands use them. */
export const SHORT_NAMES = {
  InferenceCluster: "ic",
  InferenceGateway: "ig",
  ModelService: "ms",
  ModelDeployment: "md",
  ModelReplica: "mr",
  ModelCache: "mc",
  InferenceClass: "icl",
  ModelEndpoint: "me",
};
// These conditions report a problem when they are true, all others when they are not true.
const TOLD_WHILE_TRUE = ["Deleting", "SchedulingDisabled"];
const SCALED_TO_ZERO = "ScaledToZero";

/**
 * @param {Tree} tree
 * @returns {Condition[]}
 */
export function conditions(tree) {
  return tree.status?.conditions ?? [];
}

/**
 * @param {Tree} tree
 * @param {string} type
 * @returns {Condition | undefined}
 */
export function condition(tree, type) {
  return conditions(tree).find((each) => each.type === type);
}

/**
 * @param {Tree} tree
 * @returns {boolean} whether the object does its work, or has been scaled to zero
 */
export function isReady(tree) {
  const ready = condition(tree, "Ready");
  return ready?.status === "True" || ready?.reason === SCALED_TO_ZERO;
}

/**
 * @param {Tree} tree
 * @returns {State}
 */
export function stateOf(tree) {
  const ready = condition(tree, "Ready");
  const phase = tree.status?.phase ?? "";
  const why = ready?.status === "True" ? "" : reasonAndMessage(ready);
  if (tree.metadata.deletionTimestamp) return { sort: "deleting", word: "Being deleted", why };
  if (phase === "Failed") return { sort: "failed", word: "Failed", why };
  if (ready?.status === "True") return { sort: "ready", word: "Ready", why: "" };
  if (ready?.reason === SCALED_TO_ZERO) return { sort: "ready", word: "Scaled to zero", why: "" };
  return { sort: "waiting", word: phase && phase !== "Ready" ? phase : "Not ready", why };
}

/**
 * @param {Condition | undefined} condition
 * @returns {string}
 */
function reasonAndMessage(condition) {
  return [condition?.reason, condition?.message].filter(Boolean).join(": ");
}

/**
 * Returns the problems that conditions other than Ready report.
 *
 * @param {Tree} tree
 * @returns {{type: string, text: string}[]}
 */
export function notes(tree) {
  const ready = condition(tree, "Ready");
  return conditions(tree)
    .filter((each) => each.type !== "Ready")
    .filter((each) => (each.status === "True") === TOLD_WHILE_TRUE.includes(each.type))
    .filter((each) => each.message !== ready?.message || each.reason !== ready?.reason)
    .map((each) => ({ type: each.type, text: reasonAndMessage(each) || `is ${each.status}` }));
}

/**
 * @param {Tree} tree
 * @returns {string} the name with the namespace, if it has one
 */
export function fullName(tree) {
  const { name, namespace } = tree.metadata;
  return namespace ? `${namespace}/${name}` : name;
}

/**
 * @param {Tree} a
 * @param {Tree} b
 * @returns {number}
 */
export function byName(a, b) {
  const [first, second] = [fullName(a), fullName(b)];
  return first < second ? -1 : Number(first > second);
}

/**
 * Returns the arguments by which commands name an object, such as `md/qwen -n ml-team`.
 *
 * @param {string} kind
 * @param {Tree} tree
 * @returns {string}
 */
export function commandName(kind, tree) {
  const { name, namespace } = tree.metadata;
  const short = /** @type {Record<string, string>} */ (SHORT_NAMES)[kind] ?? kind.toLowerCase();
  return `${short}/${name}${namespace && namespace !== "default" ? ` -n ${namespace}` : ""}`;
}

/**
 * Returns the address of an object's workflow in the Temporal UI. It is empty if the UI's
 * address is not set, or is not an http address.
 *
 * @param {{temporalUi: string, temporalNamespace: string}} settings
 * @param {string} kind
 * @param {Tree} tree
 * @returns {string}
 */
export function workflowLink(settings, kind, tree) {
  if (!/^https?:\/\//i.test(settings.temporalUi)) return "";
  const ui = settings.temporalUi.replace(/\/+$/, "");
  const namespace = encodeURIComponent(settings.temporalNamespace);
  const id = encodeURIComponent(`${kind.toLowerCase()}/${fullName(tree)}`);
  return `${ui}/namespaces/${namespace}/workflows/${id}`;
}
