/**
 * What a list and a watch of the Kubernetes API tell, kept as a map of objects. Nothing here waits or calls out.
 *
 * @typedef {{name: string, namespace?: string, uid?: string, resourceVersion?: string, deletionTimestamp?: string}} Metadata
 * @typedef {{kind?: string, metadata: Metadata, spec?: any, status?: any}} Tree an object as the API gives it
 * @typedef {{type: string, object: any}} WatchEvent
 * @typedef {{objects: Map<string, Tree>, version: string}} Known the objects of a collection, and the version from which a watch goes on
 */

/** The list has to be read again: what changed since the version is not known any more. */
export class Expired extends Error {}

/** A watch has ended with an error of the server. */
export class WatchFailed extends Error {}

/**
 * @param {Metadata} metadata
 * @returns {string} what tells an object from all others of its kind
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
 * Gives what is known after an event; the map of before is not changed. Throws `Expired`, `WatchFailed`.
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

/** Cuts a stream of text into lines; what follows the last line break waits for more. */
export class Lines {
  #rest = "";

  /**
   * @param {string} text
   * @returns {string[]} the lines that are complete now
   */
  add(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    return lines.filter((line) => line.trim() !== "");
  }
}
