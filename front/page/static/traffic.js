/**
 * Traffic of services and queues of deployments, in words.
 *
 * @typedef {{requestsPerSecond?: number, errorsPerSecond?: number, retriesPerSecond?: number,
 *   p50Milliseconds?: number, p99Milliseconds?: number, ejectedEndpoints?: number}} Numbers
 * @typedef {import("./front_data.js").Traffic} Traffic
 */

import { age } from "./ages.js";

/**
 * @param {Numbers | undefined} numbers
 * @returns {string} rates of the last five minutes; empty without numbers
 */
export function trafficText(numbers) {
  if (!numbers) return "";
  const { requestsPerSecond: rate = 0, errorsPerSecond = 0, retriesPerSecond = 0 } = numbers;
  const ejected = numbers.ejectedEndpoints ?? 0;
  return [
    `${short(rate)} requests/s`,
    rate > 0 ? `${short((100 * errorsPerSecond) / rate)}% errors` : "",
    retriesPerSecond > 0 ? `${short(retriesPerSecond)} retries/s` : "",
    latency(numbers),
    ejected > 0 ? `${ejected} ejected` : "",
  ].filter(Boolean).join(", ");
}

/**
 * @param {Traffic | null} traffic
 * @param {number} now
 * @returns {string} why there are no numbers, or why they are old; empty if neither
 */
export function trafficNote(traffic, now) {
  if (!traffic) return "";
  if (!traffic.configured) {
    return "Rates, errors, latency and ejections are unknown: no Prometheus is configured. Set front.prometheusUrl to one that has the metrics of the gateway's Envoy.";
  }
  if (!traffic.problem) return "";
  const last = traffic.at ? ` The numbers are from ${age(traffic.at, now)} ago.` : "";
  return `Traffic cannot be read from Prometheus: ${traffic.problem}.${last}`;
}

/**
 * @param {any} metrics of a deployment, as autoscalers read them; null if there are none
 * @param {number} now
 * @returns {string}
 */
export function queueText(metrics, now) {
  if (!metrics) return "";
  const { queueDepth, runningRequests, observedAt } = metrics;
  const parts = [
    queueDepth === undefined ? "" : `${short(queueDepth)} requests wait`,
    runningRequests === undefined ? "" : `${short(runningRequests)} run`,
  ];
  return `${parts.filter(Boolean).join(", ")}; as of ${age(observedAt, now)} ago`;
}

/**
 * @param {Numbers} numbers
 * @returns {string}
 */
function latency({ p50Milliseconds: p50, p99Milliseconds: p99 }) {
  if (p50 === undefined || p99 === undefined) return "";
  return `half within ${short(p50)} ms, 99% within ${short(p99)} ms`;
}

/**
 * @param {number} value
 * @returns {string} with at most one decimal
 */
function short(value) {
  return String(value < 10 ? Math.round(value * 10) / 10 : Math.round(value));
}
