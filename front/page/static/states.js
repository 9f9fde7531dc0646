/**
 * Describes the state of an object in words.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {"ready" | "waiting" | "failed" | "deleting"} Sort
 * @typedef {{sort: Sort, word: string, why: string}} State `why`: the reason if it is not Ready
 * @typedef {{type: string, status: string, reason: string, message: string}} Condition
 */

// These conditions report a problem when they are true, all others when they are not true.
const TOLD_WHILE_TRUE = ["Deleting", "SchedulingDisabled"];

/**
 * @param {Tree} tree
 * @returns {Condition[]}
 */
function conditions(tree) {
  return tree.status?.conditions ?? [];
}

/**
 * @param {Tree} tree
 * @returns {State}
 */
export function stateOf(tree) {
  const ready = conditions(tree).find((each) => each.type === "Ready");
  const phase = tree.status?.phase ?? "";
  const why = ready?.status === "True" ? "" : reasonAndMessage(ready);
  if (tree.metadata.deletionTimestamp) return { sort: "deleting", word: "Being deleted", why };
  if (phase === "Failed") return { sort: "failed", word: "Failed", why };
  if (ready?.status === "True") return { sort: "ready", word: "Ready", why: "" };
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
  const ready = conditions(tree).find((each) => each.type === "Ready");
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
