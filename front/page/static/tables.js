/** Tables of the detail view. */

import { element } from "./elements.js";

/**
 * @param {string} title
 * @param {string[]} columns
 * @param {string[][]} rows
 * @returns {HTMLElement[]} nothing without rows
 */
export function table(title, columns, rows) {
  if (rows.length === 0) return [];
  const head = columns.map((each) => element("th", { scope: "col" }, each));
  const body = rows.map((row) => element("tr", {}, ...row.map((each) => element("td", {}, each))));
  return [
    element("h3", {}, title),
    element(
      "div",
      { class: "wide", tabindex: "0", role: "group", "aria-label": title },
      element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body)),
    ),
  ];
}
