/**
 * The nodes of a pool, and the pods of replicas on them.
 *
 * No status contains the node of a pod. So each pod is drawn on the node with the most free
 * GPUs, which the page explains.
 *
 * @typedef {import("./watch_events.js").Tree} Tree
 * @typedef {{pool: string, gpus: number}} Pod
 * @typedef {{nodes: number, gpusPerNode: number}} Size
 * @typedef {{who: number, gpus: number}[]} Node `who`: the index of the occupant
 */

// In larger pools, only this number of nodes get pods. Sums still include all pods.
const NODES_MAX = 4096;
const GPUS_PER_NODE_MAX = 1024;

/**
 * @param {any} device a device of a published pool
 * @returns {number} the number that pods can claim per node
 */
function claimable(device) {
  return device.claim === "Synthetic" ? 0 : Math.max(0, device.count ?? 0);
}

/**
 * @param {any} pool a pool of `status.gpuPools`
 * @returns {any[]} the GPUs, or all devices if none is named as a GPU
 */
function counted(pool) {
  const devices = (pool.devices ?? []).filter((/** @type {any} */ device) => claimable(device) > 0);
  const gpus = devices.filter((/** @type {any} */ device) => {
    const { name, driver, deviceClassName, resourceName } = device;
    return /gpu/i.test([name, driver, deviceClassName, resourceName].join(" "));
  });
  return gpus.length > 0 ? gpus : devices;
}

/**
 * @param {any} pool a pool of `status.gpuPools`
 * @returns {Size}
 */
export function sizeOf(pool) {
  const gpusPerNode = counted(pool).reduce((sum, device) => sum + claimable(device), 0);
  return { nodes: Math.max(0, pool.nodes ?? 0), gpusPerNode };
}

/**
 * @param {Tree} replica
 * @param {any[]} pools of `status.gpuPools`
 * @returns {Pod[]} its pods that claim devices
 */
export function podsOf(replica, pools) {
  /** @type {Pod[]} */
  const pods = [];
  for (const engine of replica.spec?.engines ?? []) {
    for (const member of engine.members ?? []) {
      const requests = member.deviceRequests ?? [];
      if (requests.length === 0) continue;
      const devices = counted(pools.find((pool) => pool.name === member.nodePoolName) ?? {});
      let gpus = 0;
      for (const request of requests) {
        const isCounted =
          devices.length === 0 || devices.some((device) => sameOf(request, device));
        if (isCounted) gpus += request.count ?? 1;
      }
      const each = member.role === "Worker" ? (member.worker?.nodes ?? 1) : 1;
      for (let left = each * (engine.copies ?? 1); left > 0; left -= 1) {
        pods.push({ pool: member.nodePoolName, gpus });
      }
    }
  }
  return pods;
}

/**
 * @param {any} request
 * @param {any} device
 * @returns {boolean} whether a device can satisfy a request
 */
function sameOf(request, device) {
  if (request.resourceName) return request.resourceName === device.resourceName;
  return request.deviceClassName === (device.deviceClassName ?? request.deviceClassName);
}

/**
 * Assigns the pods of occupants to nodes: each to the first node with the most free GPUs.
 *
 * @param {Size} size
 * @param {number[][]} podsOfEach GPUs of each pod, per occupant
 * @returns {{nodes: Node[], without: number}} `without`: the number of pods without a node
 */
export function packed(size, podsOfEach) {
  /** @type {Node[]} */
  const nodes = Array.from({ length: Math.min(size.nodes, NODES_MAX) }, () => []);
  const free = Math.min(size.gpusPerNode, GPUS_PER_NODE_MAX);
  /** @type {number[][]} nodes by free GPUs; nodes at the end are used first */
  const byFree = Array.from({ length: free + 1 }, () => []);
  byFree[free] = nodes.map((_, at) => nodes.length - 1 - at);
  let without = 0;
  let most = free;
  podsOfEach.forEach((pods, who) => {
    for (const gpus of pods) {
      while (most > 0 && byFree[most].length === 0) most -= 1;
      const at = gpus <= most ? byFree[most].pop() : undefined;
      if (at === undefined) {
        without += 1;
        continue;
      }
      nodes[at].push({ who, gpus });
      byFree[most - gpus].unshift(at);
    }
  });
  return { nodes, without };
}
