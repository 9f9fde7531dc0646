/**
 * Selects the changes that screen readers announce: changes of state, a few at a time.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 */

import { fullName, stateOf } from "./states.js";

/** The maximum number of sentences in one announcement. Further changes are only counted. */
export const SENTENCES_MAX = 3;

// The objects of these kinds are announced, by the noun in the sentence.
const NOUNS = { InferenceCluster: "Cluster", ModelDeployment: "Deployment", ModelService: "Service" };

/**
 * @param {Map<string, Map<string, Tree>>} objects by kind
 * @returns {Map<string, string>} the state of each object, by noun and name
 */
export function stateWords(objects) {
  /** @type {Map<string, string>} */
  const words = new Map();
  for (const [kind, noun] of Object.entries(NOUNS)) {
    for (const tree of objects.get(kind)?.values() ?? []) {
      words.set(`${noun} ${fullName(tree)}`, stateOf(tree).word);
    }
  }
  return words;
}

/**
 * @param {Map<string, string>} before
 * @param {Map<string, string>} after
 * @returns {string} the changes in sentences; may be empty
 */
export function announcement(before, after) {
  const sentences = [];
  for (const [name, word] of after) {
    if (!before.has(name)) sentences.push(`${name} is new: ${word}.`);
    else if (before.get(name) !== word) sentences.push(`${name}: ${word}.`);
  }
  for (const name of before.keys()) if (!after.has(name)) sentences.push(`${name} is gone.`);
  const announced = sentences.slice(0, SENTENCES_MAX);
  const more = sentences.length - announced.length;
  if (more > 0) announced.push(`${more} more changes.`);
  return announced.join(" ");
}
