/**
 * The followed collections, and their objects by kind.
 *
 * @typedef {import("./watch_events.js").Known} Known
 * @typedef {import("./connection.js").Following} Following
 */

import { follow, reread } from "./follow.js";

const API = "/apis/modelplane.ai/v1alpha1";

export const COLLECTIONS = [
  { kind: "InferenceCluster", plural: "inferenceclusters", namespaced: false, watched: true },
  { kind: "ModelDeployment", plural: "modeldeployments", namespaced: true, watched: true },
  { kind: "ModelReplica", plural: "modelreplicas", namespaced: true, watched: true },
  { kind: "ModelService", plural: "modelservices", namespaced: true, watched: true },
  { kind: "ModelCache", plural: "modelcaches", namespaced: true, watched: false },
  { kind: "InferenceClass", plural: "inferenceclasses", namespaced: false, watched: false },
  { kind: "InferenceGateway", plural: "inferencegateways", namespaced: false, watched: false },
  { kind: "ModelEndpoint", plural: "modelendpoints", namespaced: true, watched: false },
].map((each) => ({
  ...each,
  known: /** @type {Known | null} */ (null),
  following: /** @type {Following} */ ({ sort: "connecting" }),
}));

/**
 * @param {string} kind
 * @returns {typeof COLLECTIONS[0]}
 */
export function collection(kind) {
  return /** @type {typeof COLLECTIONS[0]} */ (COLLECTIONS.find((each) => each.kind === kind));
}

/** @returns {Map<string, Known["objects"]>} by kind, only objects that were read */
export function allObjects() {
  return new Map(COLLECTIONS.map((each) => [each.kind, each.known?.objects ?? new Map()]));
}

export function forgetObjects() {
  for (const each of COLLECTIONS) each.known = null;
}

/**
 * Follows all collections until the signal is aborted.
 *
 * @param {{token: string, namespace: string, changed: () => void}} order
 * @param {AbortSignal} signal
 */
export function followAll({ token, namespace, changed }, signal) {
  const orders = COLLECTIONS.map((each) => {
    each.following = { sort: "connecting" };
    const isLimited = each.namespaced && namespace;
    const where = isLimited ? `/namespaces/${encodeURIComponent(namespace)}` : "";
    return {
      path: `${API}${where}/${each.plural}`,
      token,
      known: each.known,
      changed: (/** @type {Known | null} */ known) => {
        if (signal.aborted) return;
        each.known = known;
        changed();
      },
      told: (/** @type {Following} */ following) => {
        if (signal.aborted) return;
        each.following = following;
        changed();
      },
    };
  });
  orders.forEach((order, at) => {
    void (COLLECTIONS[at].watched ? follow : reread)(order, signal);
  });
}
