/**
 * Which changes are read out: those of the state of an object, few at a time.
 *
 * @typedef {import("./states.js").State} State
 * @typedef {{name: string, state: State}} Shown
 */

/** Sentences of one announcement; of more only the number is said. */
export const SENTENCES_MAX = 3;

/**
 * @param {string} noun
 * @param {Shown[]} shown
 * @returns {Map<string, string>} the state of each object by what it is called
 */
export function statesByName(noun, shown) {
  return new Map(shown.map((each) => [`${noun} ${each.name}`, each.state.word]));
}

/**
 * @param {Map<string, string>} before
 * @param {Map<string, string>} after
 * @returns {string} what changed, in sentences; empty if nothing did
 */
export function announcement(before, after) {
  const sentences = [];
  for (const [name, word] of after) {
    if (!before.has(name)) sentences.push(`${name} is new: ${word}.`);
    else if (before.get(name) !== word) sentences.push(`${name}: ${word}.`);
  }
  for (const name of before.keys()) if (!after.has(name)) sentences.push(`${name} is gone.`);
  const more = sentences.length - SENTENCES_MAX;
  return [...sentences.slice(0, SENTENCES_MAX), ...(more > 0 ? [`${more} more changes.`] : [])].join(" ");
}
