/**
 * Small drawings: one cell per node or device, shares of traffic, and lines of values over time.
 *
 * @typedef {import("./capacity.js").Charge} Charge
 */

import { NODE_SORTS, chargeText, total } from "./capacity.js";
import { picture } from "./elements.js";

const CELL = 10;
const STEP = 12;
const LINES = 3;
const COLUMNS_MAX = 34;
const LINE_WIDTH = 120;
const LINE_HEIGHT = 24;

/**
 * @param {Charge} charge
 * @returns {number} the nodes or devices that one cell stands for
 */
export function nodesPerCell(charge) {
  return Math.max(1, Math.ceil(total(charge) / (COLUMNS_MAX * LINES - NODE_SORTS.length)));
}

/**
 * Draws one cell per node or device, column by column. In large pools a cell stands for
 * several, and a sort with any has at least one cell.
 *
 * @param {Charge} charge
 * @param {string} label
 * @param {import("./capacity.js").Unit} unit
 * @returns {Element}
 */
export function cells(charge, label, unit = "nodes") {
  const per = nodesPerCell(charge);
  let at = 0;
  const parts = [];
  for (const sort of NODE_SORTS) {
    const count = Math.ceil(charge[sort] / per);
    let path = "";
    for (const end = at + count; at < end; at += 1) {
      const x = Math.floor(at / LINES) * STEP + 1;
      const y = (at % LINES) * STEP + 1;
      path += `M${x} ${y}h${CELL}v${CELL}h-${CELL}z`;
    }
    if (path) parts.push({ name: `node ${sort}`, path });
  }
  const width = Math.max(1, Math.ceil(at / LINES)) * STEP;
  const scale = per > 1 ? `; a cell is ${per} ${unit}` : "";
  return picture(width, LINES * STEP, `${label}: ${chargeText(charge)} ${unit}${scale}`, parts);
}

/**
 * @param {number[]} values the oldest first
 * @param {string} label
 * @returns {Element} a line from zero to the largest value
 */
export function line(values, label) {
  const most = Math.max(1, ...values);
  const step = LINE_WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, index) => {
    const y = LINE_HEIGHT - 2 - (value / most) * (LINE_HEIGHT - 4);
    return `${(index * step).toFixed(1)} ${y.toFixed(1)}`;
  });
  const path = points.length > 1 ? `M${points.join("L")}` : "";
  return picture(LINE_WIDTH, LINE_HEIGHT, label, path ? [{ name: "history", path }] : []);
}
