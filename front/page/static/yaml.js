/** Writes an object as YAML, as `kubectl get -o yaml` does. */

const PLAIN = /^[A-Za-z_./][\w./ -]*(?<! )$/;
const WORDS = /^(true|false|null|yes|no|on|off|y|n|~)$/i;

/**
 * @param {any} value
 * @param {string} indent
 * @returns {string} lines, without a line break at the end
 */
export function yaml(value, indent = "") {
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    return value.map((each) => `${indent}- ${inner(each, `${indent}  `)}`).join("\n");
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    if (entries.length === 0) return "{}";
    return entries.map(([key, each]) => `${indent}${scalar(key)}:${after(each, indent)}`).join("\n");
  }
  return scalar(value);
}

/**
 * @param {any} value an item of a list
 * @param {string} indent
 * @returns {string}
 */
function inner(value, indent) {
  return isNested(value) ? yaml(value, indent).trimStart() : yaml(value);
}

/**
 * @param {any} value the value of a key
 * @param {string} indent
 * @returns {string}
 */
function after(value, indent) {
  if (!isNested(value)) return ` ${yaml(value)}`;
  return `\n${yaml(value, Array.isArray(value) ? indent : `${indent}  `)}`;
}

/**
 * @param {any} value
 * @returns {boolean}
 */
function isNested(value) {
  return value !== null && typeof value === "object" && Object.keys(value).length > 0;
}

/**
 * @param {any} value
 * @returns {string}
 */
function scalar(value) {
  if (typeof value !== "string") return String(value);
  return PLAIN.test(value) && !WORDS.test(value) ? value : JSON.stringify(value);
}
