/**
 * Lists of rows with one height. Only the rows in view are in the document, so a list of
 * thousands of rows is as cheap as a list of twenty.
 *
 * @typedef {{key: string, content: unknown[], make: () => HTMLElement}} Row `content`: the
 *   row is made again when one of these values changes
 */

import { element, showChildren } from "./elements.js";

// Rows above and below the view, which are there before a reader scrolls to them.
const MARGIN = 6;

export class RowList {
  /** @type {Row[]} */
  #rows = [];
  /** @type {Map<string, {content: unknown[], made: HTMLElement}>} */
  #made = new Map();
  #above = element("div", { class: "spacer" });
  #below = element("div", { class: "spacer" });
  #list;
  #parent;

  /**
   * @param {HTMLElement} parent
   * @param {string} label the name of the list for screen readers
   */
  constructor(parent, label) {
    this.#parent = parent;
    this.#list = element("ul", { class: "rows", "aria-label": label });
    parent.append(this.#above, this.#list, this.#below);
    parent.addEventListener("scroll", () => this.#draw(), { passive: true });
    parent.addEventListener("keydown", (event) => this.#moved(event));
  }

  /** @param {Row[]} rows */
  show(rows) {
    this.#rows = rows;
    this.#parent.classList.toggle("empty", rows.length === 0);
    this.#draw();
  }

  #height() {
    const text = getComputedStyle(this.#parent).getPropertyValue("--row");
    return parseFloat(text) * parseFloat(getComputedStyle(document.documentElement).fontSize);
  }

  #draw() {
    const height = this.#height();
    const shown = Math.ceil((this.#parent.clientHeight || 600) / height) + 2 * MARGIN;
    const last = Math.max(0, this.#rows.length - shown);
    const first = Math.min(last, Math.max(0, Math.floor(this.#parent.scrollTop / height) - MARGIN));
    const rows = this.#rows.slice(first, first + shown);
    /** @type {Map<string, {content: unknown[], made: HTMLElement}>} */
    const kept = new Map();
    const nodes = rows.map((row, index) => {
      const before = this.#made.get(row.key);
      const isSame = before && row.content.every((each, at) => each === before.content[at]);
      const made = isSame ? before.made : row.make();
      made.setAttribute("data-key", row.key);
      made.setAttribute("aria-setsize", String(this.#rows.length));
      made.setAttribute("aria-posinset", String(first + index + 1));
      return { row, made };
    });
    showChildren(this.#list, nodes.map(({ made }) => made));
    // The shown elements are those of before if they had the same key.
    const children = [...this.#list.children];
    nodes.forEach(({ row }, index) => {
      kept.set(row.key, { content: row.content, made: /** @type {HTMLElement} */ (children[index]) });
    });
    this.#made = kept;
    this.#above.style.height = `${first * height}px`;
    this.#below.style.height = `${(this.#rows.length - first - rows.length) * height}px`;
  }

  /** @param {KeyboardEvent} event arrow keys move the focus to the next row */
  #moved(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const from = /** @type {Element | null} */ (event.target)?.closest("li");
    if (!step || !from || event.altKey || event.ctrlKey || event.metaKey) return;
    const next = step > 0 ? from.nextElementSibling : from.previousElementSibling;
    const target = /** @type {HTMLElement | null} */ (next?.querySelector("a, button"));
    if (!target) return;
    event.preventDefault();
    target.focus();
  }
}
