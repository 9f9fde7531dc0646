/**
 * Describes the connection, based on the state of each followed collection.
 *
 * @typedef {{sort: "connecting" | "live" | "paused"}} Simple
 * @typedef {{sort: "lost", since: number, why: string}} Lost `since`: milliseconds since 1970
 * @typedef {{sort: "refused", code: number, why: string}} Refusal `code`: the HTTP status
 * @typedef {Simple | Lost | Refusal} Following
 */

/**
 * Returns the text about the connection.
 *
 * @param {Following[]} followed one per collection
 * @param {(milliseconds: number) => string} clock formats a time of day
 * @returns {{sort: "ok" | "waiting" | "problem", text: string}}
 */
export function connectionLine(followed, clock) {
  const lost = /** @type {Lost[]} */ (followed.filter((each) => each.sort === "lost"));
  if (lost.length > 0) {
    const first = lost.reduce((a, b) => (a.since <= b.since ? a : b));
    return {
      sort: "problem",
      text:
        `Not connected since ${clock(first.since)}: ${first.why}. ` +
        "The page shows the last known state and tries to reconnect.",
    };
  }
  const refused = /** @type {Refusal[]} */ (followed.filter((each) => each.sort === "refused"));
  if (refused.some((each) => each.code === 401)) {
    return {
      sort: "problem",
      text: "The server rejected this token (401). Paste another token and choose Connect.",
    };
  }
  const has = (/** @type {string} */ sort) => followed.some((each) => each.sort === sort);
  if (has("paused")) return { sort: "waiting", text: "Paused while this tab is hidden." };
  if (has("connecting")) return { sort: "waiting", text: "Connecting." };
  if (refused.length === followed.length) {
    return { sort: "problem", text: "Connected, but this token has no right to read here (403)." };
  }
  if (refused.length > 0) {
    return {
      sort: "ok",
      text: "Connected. This token lacks the right to read some of the sections below.",
    };
  }
  return { sort: "ok", text: "Connected: changes appear as they happen." };
}

/**
 * Returns the text of a section whose objects the user may not read; else an empty text.
 *
 * @param {Following} following
 * @param {{namespaced: boolean, namespace: string}} asked
 * @returns {string}
 */
export function refusalText(following, asked) {
  if (following.sort !== "refused") return "";
  const mayHelp = asked.namespaced && !asked.namespace && following.code === 403;
  const hint = mayHelp ? " If you have rights in one namespace only, enter it above." : "";
  return `Not allowed (${following.code}): ${following.why}.${hint}`;
}

/**
 * Returns the pause before the next attempt, in milliseconds. It doubles each time, up to 15 s.
 *
 * @param {number} failures in a row, at least one
 * @param {number} random between 0 and 1, so that not all pages reconnect at once
 * @returns {number}
 */
export function waitAfter(failures, random) {
  return Math.min(15_000, 250 * 2 ** Math.min(failures, 10)) * (0.5 + random / 2);
}
