/** Ages of values, in the largest unit that fits. */

const UNITS = /** @type {[string, number][]} */ ([
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
]);

/**
 * @param {string | number | undefined} since RFC 3339, or milliseconds since 1970
 * @param {number} now milliseconds since 1970
 * @returns {string} such as `5 min`; empty if the time is unknown
 */
export function age(since, now) {
  const began = typeof since === "number" ? since : Date.parse(since ?? "");
  if (!Number.isFinite(began)) return "";
  const seconds = Math.max(0, Math.floor((now - began) / 1000));
  for (const [unit, size] of UNITS) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${seconds} s`;
}

/**
 * @param {string | number | undefined} since
 * @param {number} now
 * @returns {string} such as `for 5 min`; empty if the time is unknown
 */
export function lasting(since, now) {
  const text = age(since, now);
  return text && `for ${text}`;
}
