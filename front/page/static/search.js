/** Selects the objects that a search names. */

import { regionOf } from "./fleet.js";
import { fullName, isReady, stateOf } from "./states.js";

/** @typedef {import("./watch_events.js").Tree} Tree */

/** @type {WeakMap<Tree, string>} */
const textBefore = new WeakMap();

/**
 * @param {string} kind
 * @param {Tree} tree
 * @returns {string} its words in lower case
 */
function textOf(kind, tree) {
  const before = textBefore.get(tree);
  if (before !== undefined) return before;
  const labels = Object.entries(/** @type {any} */ (tree.metadata).labels ?? {});
  const words = [
    kind,
    fullName(tree),
    kind === "InferenceCluster" ? regionOf(tree) : "",
    tree.spec?.clusterName ?? "",
    ...(tree.status?.placements ?? []).map((/** @type {any} */ each) => each.cluster),
    stateOf(tree).word,
    tree.status?.conditions?.find((/** @type {any} */ each) => each.type === "Ready")?.reason,
    ...labels.map(([key, value]) => `${key}=${value}`),
  ];
  const text = words.join(" ").toLowerCase();
  textBefore.set(tree, text);
  return text;
}

/**
 * @param {{search: string, unready: boolean}} view
 * @returns {(kind: string, tree: Tree) => boolean} whether an object has all searched words
 */
export function matcher({ search, unready }) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return (kind, tree) => {
    if (unready && isReady(tree) && !tree.metadata.deletionTimestamp) return false;
    if (words.length === 0) return true;
    const text = textOf(kind, tree);
    return words.every((word) => text.includes(word));
  };
}
