/**
 * What is said of the connection, from how each collection is followed.
 *
 * @typedef {{sort: "connecting" | "live" | "paused"}} Simple
 * @typedef {{sort: "lost", since: number, why: string}} Lost `since`: milliseconds since 1970
 * @typedef {{sort: "refused", code: number, why: string}} Refusal `code`: of HTTP
 * @typedef {Simple | Lost | Refusal} Following
 */

/**
 * Gives the line about the connection.
 *
 * @param {Following[]} followed one per collection
 * @param {(milliseconds: number) => string} clock writes a time of day
 * @returns {{sort: "ok" | "waiting" | "problem", text: string}}
 */
export function connectionLine(followed, clock) {
  const lost = /** @type {Lost[]} */ (followed.filter((each) => each.sort === "lost"));
  if (lost.length > 0) {
    const first = lost.reduce((a, b) => (a.since <= b.since ? a : b));
    return {
      sort: "problem",
      text: `Not connected since ${clock(first.since)}: ${first.why}. What was seen last is shown; the connection is tried again.`,
    };
  }
  const refused = /** @type {Refusal[]} */ (followed.filter((each) => each.sort === "refused"));
  if (refused.some((each) => each.code === 401)) {
    return { sort: "problem", text: "The server does not know this token (401). Paste a token and choose Connect." };
  }
  if (followed.some((each) => each.sort === "paused")) return { sort: "waiting", text: "Paused while this tab is hidden." };
  if (followed.some((each) => each.sort === "connecting")) return { sort: "waiting", text: "Connecting." };
  if (refused.length === followed.length) return { sort: "problem", text: "Connected, but this token may read nothing here (403)." };
  if (refused.length > 0) return { sort: "ok", text: "Connected. This token may not read everything: each section says so." };
  return { sort: "ok", text: "Connected: changes are shown as they happen." };
}

/**
 * Gives what a section says in place of objects that may not be read; empty if they may.
 *
 * @param {Following} following
 * @param {{namespaced: boolean, namespace: string}} asked
 * @returns {string}
 */
export function refusalText(following, asked) {
  if (following.sort !== "refused") return "";
  const hint = asked.namespaced && !asked.namespace && following.code === 403 ? " If your rights are in one namespace, name it above." : "";
  return `Not allowed (${following.code}): ${following.why}.${hint}`;
}

/**
 * Gives how long to wait before the next attempt, in milliseconds; twice as long each time, up to 15 s.
 *
 * @param {number} failures in a row, at least one
 * @param {number} random between 0 and 1, so that not all pages come at once
 * @returns {number}
 */
export function waitAfter(failures, random) {
  return Math.min(15_000, 250 * 2 ** Math.min(failures, 10)) * (0.5 + random / 2);
}
