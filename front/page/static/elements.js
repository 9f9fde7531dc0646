/**
 * Creates elements, and updates shown elements to match new ones.
 *
 * Names, labels and messages come from users, so they are only inserted as text. The
 * Content-Security-Policy of the page rejects everything that could parse them as HTML.
 */

/**
 * @param {string} tag
 * @param {Record<string, string>} attributes
 * @param {...(Node | string | null)} children null is skipped
 * @returns {HTMLElement}
 */
export function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  for (const child of children) if (child !== null) made.append(child);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * Returns a picture with a text that screen readers say in its place.
 *
 * @param {number} width
 * @param {number} height
 * @param {string} label
 * @param {{name: string, path: string}[]} parts the CSS class and the path of each part
 * @returns {Element}
 */
export function picture(width, height, label, parts) {
  const made = document.createElementNS(SVG, "svg");
  const attributes = { viewBox: `0 0 ${width} ${height}`, width: String(width), role: "img" };
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.setAttribute("height", String(height));
  made.setAttribute("aria-label", label);
  for (const { name, path } of parts) {
    const drawn = document.createElementNS(SVG, "path");
    drawn.setAttribute("class", name);
    drawn.setAttribute("d", path);
    made.append(drawn);
  }
  return made;
}

/**
 * Returns a text for screen readers only.
 *
 * @param {string} text
 * @returns {HTMLElement}
 */
export function spoken(text) {
  return element("span", { class: "aside" }, text);
}

/**
 * @param {string} href an http or https address
 * @param {string} text
 * @param {string} about a description that screen readers add to the text
 * @returns {HTMLElement}
 */
export function link(href, text, about) {
  return element("a", { href, rel: "noreferrer" }, text, spoken(` ${about}`));
}

/**
 * Updates the children of an element to match new ones. Existing nodes are kept where
 * possible, with their focus. Children with equal `data-key` are the same.
 *
 * @param {Node} parent
 * @param {Node[]} wanted
 */
export function showChildren(parent, wanted) {
  const keys = new Set(wanted.map(keyOf).filter(Boolean));
  for (const child of [...parent.childNodes]) {
    if (keyOf(child) && !keys.has(keyOf(child))) child.remove();
  }
  const keyed = new Map([...parent.childNodes].filter(keyOf).map((child) => [keyOf(child), child]));
  let at = parent.firstChild;
  for (const next of wanted) {
    const key = keyOf(next);
    const old = key ? keyed.get(key) : at && !keyOf(at) ? at : undefined;
    if (!old) {
      parent.insertBefore(next, at);
      continue;
    }
    if (old === at) at = at.nextSibling;
    else parent.insertBefore(old, at);
    makeLike(old, next);
  }
  while (at) {
    const following = at.nextSibling;
    at.remove();
    at = following;
  }
}

/**
 * @param {ChildNode} old
 * @param {Node} next
 */
function makeLike(old, next) {
  if (old === next) return;
  if (old.nodeName !== next.nodeName) {
    old.replaceWith(next);
    return;
  }
  if (!(old instanceof Element) || !(next instanceof Element)) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  showChildren(old, [...next.childNodes]);
}

/**
 * @param {Node} node
 * @returns {string}
 */
function keyOf(node) {
  return (node instanceof Element && node.getAttribute("data-key")) || "";
}
