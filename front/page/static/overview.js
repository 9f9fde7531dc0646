/**
 * The tiles above the lists: the control plane, and sums of the fleet with their history.
 *
 * @typedef {{capacity?: number[][], workloads?: number[][]}} History samples, the oldest first
 * @typedef {{now: number, temporal: {answered: number, silent: boolean},
 *   workers: {polled: number, silent: boolean, known: boolean}, sampleSeconds: number,
 *   history: History}} FrontState times in milliseconds since 1970
 * @typedef {{needed: number, problems: number, nodes: number, free: number, devices: number,
 *   freeDevices: number, ready: number, wanted: number, waiting: number}} Sums
 */

import { age } from "./ages.js";
import { add, noNodes, total } from "./capacity.js";
import { line } from "./drawings.js";
import { element } from "./elements.js";

/**
 * @param {FrontState | null} state null if the front has not answered yet
 * @param {number} now
 * @returns {HTMLElement[]}
 */
export function healthTiles(state, now) {
  if (!state) return [];
  const { temporal, workers } = state;
  const tiles = [tile(
    "temporal",
    "Temporal",
    temporal.silent ? `silent for ${age(temporal.answered, now)}` : "answers",
    temporal.silent,
  )];
  if (workers.known || workers.silent) {
    const text = workers.silent ? `silent for ${age(workers.polled, now)}` : "answer";
    tiles.push(tile("workers", "Workers", text, workers.silent));
  }
  tiles.push(tile("front", "This front", `read ${age(state.now, now)} ago`, false));
  return tiles;
}

/**
 * @param {string} key
 * @param {string} name
 * @param {string} text
 * @param {boolean} isBad
 * @param {Element | null} drawn
 * @returns {HTMLElement}
 */
function tile(key, name, text, isBad, drawn = null) {
  const made = element(
    "li",
    { class: isBad ? "tile person" : "tile", "data-key": key },
    element("span", { class: "quiet" }, `${name} `),
    element("strong", {}, text),
  );
  if (drawn) made.append(drawn);
  return made;
}

/**
 * @param {Sums} sums
 * @param {FrontState | null} state
 * @returns {HTMLElement[]}
 */
export function summaryTiles(sums, state) {
  const { capacity = [], workloads = [] } = state?.history ?? {};
  const hours = ((state?.sampleSeconds ?? 0) * Math.max(capacity.length, workloads.length)) / 3600;
  const since = `over ${hours.toFixed(1)} h`;
  const drawn = (/** @type {number[][]} */ samples, /** @type {number} */ at, /** @type {string} */ name) =>
    samples.length > 1 ? line(samples.map((each) => each[at]), `${name} ${since}`) : null;
  const person = sums.needed === 1 ? "1 needs a person" : `${sums.needed} need a person`;
  return [
    tile("problems", "Problems", sums.problems ? `${sums.problems}, ${person}` : "none", sums.needed > 0),
    ...(sums.nodes > 0 || sums.devices === 0
      ? [tile("nodes", "Nodes free", `${sums.free} of ${sums.nodes}`, false, drawn(capacity, 1, "Charged nodes"))]
      : []),
    ...(sums.devices > 0 ? [tile("devices", "Devices free", `${sums.freeDevices} of ${sums.devices}`, false)] : []),
    tile("ready", "Replicas Ready", `${sums.ready} of ${sums.wanted}`, false, drawn(workloads, 2, "Ready replicas")),
    tile("queue", "Waiting for a place", String(sums.waiting), false, drawn(workloads, 3, "Seconds of the longest wait")),
  ];
}

/**
 * @param {import("./problems.js").Problem[]} problems
 * @param {import("./fleet.js").Region[]} regions
 * @param {Map<string, import("./watch_events.js").Tree>} deployments
 * @returns {Sums}
 */
export function sumsOf(problems, regions, deployments) {
  const charge = noNodes();
  const devices = noNodes();
  for (const region of regions) {
    add(charge, region.charge);
    add(devices, region.devices);
  }
  const sums = {
    needed: problems.filter((each) => each.needsPerson).length,
    problems: problems.length,
    nodes: total(charge),
    free: charge.free,
    devices: total(devices),
    freeDevices: devices.free,
    ready: 0,
    wanted: 0,
    waiting: 0,
  };
  for (const tree of deployments.values()) {
    const wanted = tree.spec?.replicas ?? 0;
    sums.wanted += wanted;
    sums.ready += tree.status?.replicas?.ready ?? 0;
    sums.waiting += Math.max(0, wanted - (tree.status?.replicas?.total ?? 0));
  }
  return sums;
}
