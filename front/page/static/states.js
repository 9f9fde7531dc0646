/**
 * In which state an object is, in words.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {"ready" | "waiting" | "failed" | "deleting"} Sort
 * @typedef {{sort: Sort, word: string, why: string}} State `why`: what it waits for, empty if for nothing
 * @typedef {{type: string, status: string, reason: string, message: string}} Condition
 */

// Conditions that say something while they are true. All others do while they are not.
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
 * Gives what the conditions beside Ready say of an object that is not as it should be.
 *
 * @param {Tree} tree
 * @returns {{type: string, text: string}[]}
 */
export function notes(tree) {
  const ready = conditions(tree).find((each) => each.type === "Ready");
  return conditions(tree)
    .filter((each) => each.type !== "Ready" && (each.status === "True") === TOLD_WHILE_TRUE.includes(each.type))
    .filter((each) => each.message !== ready?.message || each.reason !== ready?.reason)
    .map((each) => ({ type: each.type, text: reasonAndMessage(each) || `is ${each.status}` }));
}

/**
 * @param {Tree} tree
 * @returns {string} the name with the namespace, if it has one
 */
export function fullName(tree) {
  return tree.metadata.namespace ? `${tree.metadata.namespace}/${tree.metadata.name}` : tree.metadata.name;
}

/**
 * Gives the address of an object's workflow in the Temporal UI; empty if the address of the UI is not set, or none of the web.
 *
 * @param {{temporalUi: string, temporalNamespace: string}} settings
 * @param {string} kind
 * @param {Tree} tree
 * @returns {string}
 */
export function workflowLink(settings, kind, tree) {
  if (!/^https?:\/\//i.test(settings.temporalUi)) return "";
  const id = encodeURIComponent(`${kind.toLowerCase()}/${fullName(tree)}`);
  return `${settings.temporalUi.replace(/\/+$/, "")}/namespaces/${encodeURIComponent(settings.temporalNamespace)}/workflows/${id}`;
}
