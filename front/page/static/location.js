/**
 * The address of a view: the open object and the search, in the fragment of the page's
 * address. Links to views can be shared; they contain neither token nor namespace.
 *
 * @typedef {{kind: string, namespace: string, name: string} | null} Opened
 * @typedef {{opened: Opened, search: string, unready: boolean}} View
 */

/**
 * @param {string} fragment with or without `#`
 * @returns {View}
 */
export function viewOf(fragment) {
  const [path, query = ""] = fragment.replace(/^#/, "").split("?");
  const parts = path.split("/").map(decoded).filter(Boolean);
  const parameters = new URLSearchParams(query);
  const [kind, ...names] = parts;
  const name = names.pop() ?? "";
  return {
    opened: kind && name ? { kind, namespace: names[0] ?? "", name } : null,
    search: parameters.get("q") ?? "",
    unready: parameters.get("only") === "unready",
  };
}

/**
 * @param {View} view
 * @returns {string} begins with `#`
 */
export function fragmentOf({ opened, search, unready }) {
  const parts = opened ? [opened.kind, opened.namespace, opened.name].filter(Boolean) : [];
  const parameters = new URLSearchParams();
  if (search) parameters.set("q", search);
  if (unready) parameters.set("only", "unready");
  const query = parameters.toString();
  return `#${parts.map((each) => `/${encodeURIComponent(each)}`).join("")}${query && `?${query}`}`;
}

/**
 * @param {string} text
 * @returns {string}
 */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
