/**
 * The last events of all objects that the user may read, the newest first.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {{kind: string, tree: Tree, type: string, reason: string, message: string,
 *   count: number, last: string}} FleetEvent
 */

/** The maximum number of shown events. */
export const EVENTS_MAX = 200;
const PER_OBJECT = 10;

/**
 * @param {string} kind
 * @param {Tree} tree
 * @returns {FleetEvent[]} the newest first
 */
export function eventsOf(kind, tree) {
  const events = tree.status?.events ?? [];
  return events
    .map((/** @type {any} */ each) => ({
      kind,
      tree,
      type: each.type ?? "Normal",
      reason: each.reason ?? "",
      message: each.message ?? "",
      count: each.count ?? 1,
      last: each.last ?? each.first ?? "",
    }))
    .reverse();
}

/**
 * @param {Map<string, Map<string, Tree>>} objects by kind
 * @param {(kind: string, tree: Tree) => boolean} isWanted
 * @returns {FleetEvent[]}
 */
export function newestEvents(objects, isWanted) {
  /** @type {FleetEvent[]} */
  let newest = [];
  let oldest = "";
  for (const [kind, trees] of objects) {
    for (const tree of trees.values()) {
      const events = tree.status?.events ?? [];
      const last = events.at(-1)?.last ?? "";
      if (!last || last < oldest || !isWanted(kind, tree)) continue;
      newest.push(...eventsOf(kind, tree).slice(0, PER_OBJECT));
      if (newest.length > 4 * EVENTS_MAX) {
        newest = sorted(newest);
        oldest = newest[newest.length - 1].last;
      }
    }
  }
  return sorted(newest);
}

/**
 * @param {FleetEvent[]} events
 * @returns {FleetEvent[]}
 */
function sorted(events) {
  return events.sort((a, b) => (a.last < b.last ? 1 : a.last > b.last ? -1 : 0)).slice(0, EVENTS_MAX);
}
