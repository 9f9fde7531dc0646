/**
 * Turns the responses of lists and watches into a map of objects. This module does no I/O.
 *
 * @typedef {{name: string, namespace?: string, uid?: string, resourceVersion?: string,
 *   deletionTimestamp?: string}} Metadata
 * @typedef {{kind?: string, metadata: Metadata, spec?: any, status?: any}} Tree an API object
 * @typedef {{type: string, object: any}} WatchEvent
 * @typedef {{objects: Map<string, Tree>, version: string}} Known the objects of a collection,
 *   and the version from which a watch continues
 */

/** The version is too old for a watch, so the collection must be listed again. */
export class Expired extends Error {}

/** A watch ended with an error from the server. */
export class WatchFailed extends Error {}

/**
 * @param {Metadata} metadata
 * @returns {string} the key of an object within its kind
 */
export function keyOf(metadata) {
  return `${metadata.namespace ?? ""}/${metadata.name}`;
}

/**
 * @param {{metadata: {resourceVersion: string}, items: Tree[]}} list
 * @returns {Known}
 */
export function fromList(list) {
  return {
    objects: new Map(list.items.map((tree) => [keyOf(tree.metadata), tree])),
    version: list.metadata.resourceVersion,
  };
}

/**
 * Returns the objects after an event. The given map is not modified. Throws `Expired` and
 * `WatchFailed`.
 *
 * @param {Known} known
 * @param {WatchEvent} event
 * @returns {Known}
 */
export function afterEvent(known, event) {
  if (event.type === "ERROR") {
    const message = String(event.object?.message ?? "the watch ended with an error");
    throw event.object?.code === 410 ? new Expired(message) : new WatchFailed(message);
  }
  const version = event.object.metadata.resourceVersion ?? known.version;
  if (event.type === "BOOKMARK") return { objects: known.objects, version };
  const objects = new Map(known.objects);
  const key = keyOf(event.object.metadata);
  if (event.type === "DELETED") objects.delete(key);
  else objects.set(key, event.object);
  return { objects, version };
}

/** Splits a stream of text into lines, and keeps an incomplete line for the next call. */
export class Lines {
  #rest = "";

  /**
   * @param {string} text
   * @returns {string[]} the complete lines
   */
  add(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    return lines.filter((line) => line.trim() !== "");
  }
}
