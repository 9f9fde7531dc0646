/**
 * Selects the changes that screen readers announce: changes of state, a few at a time.
 *
 * @typedef {import("./states.js").State} State
 * @typedef {{name: string, state: State}} Shown
 */

/** The maximum number of sentences in one announcement. Further changes are only counted. */
export const SENTENCES_MAX = 3;

/**
 * @param {string} noun
 * @param {Shown[]} shown
 * @returns {Map<string, string>} the state of each object, by noun and name
 */
export function statesByName(noun, shown) {
  return new Map(shown.map((each) => [`${noun} ${each.name}`, each.state.word]));
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
