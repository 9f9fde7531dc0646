/**
 * Renders the cards of clusters, deployments and services.
 *
 * @typedef {import("./clusters.js").Cluster} Cluster
 * @typedef {import("./clusters.js").Pool} Pool
 * @typedef {import("./workloads.js").Deployment} Deployment
 * @typedef {import("./workloads.js").Replica} Replica
 * @typedef {import("./workloads.js").Progress} Progress
 * @typedef {import("./workloads.js").Service} Service
 * @typedef {import("./states.js").State} State
 */

import { element, link, spoken } from "./elements.js";

const SIGNS = { ready: "✓", waiting: "…", failed: "✕", deleting: "⌫" };

/**
 * @param {Cluster} cluster
 * @returns {HTMLElement}
 */
export function clusterCard(cluster) {
  const facts = paragraph(cluster.facts.join(", "), "facts");
  return card(cluster, [facts, ...cluster.pools.flatMap(pool)]);
}

/**
 * @param {Deployment} deployment
 * @returns {HTMLElement}
 */
export function deploymentCard(deployment) {
  const replicas = deployment.replicas.map(replica);
  return card(deployment, [
    paragraph(deployment.counts, "facts"),
    deployment.rollout && progress(deployment.rollout, deployment.name),
    replicas.length > 0 ? list("Replicas", replicas) : null,
  ]);
}

/**
 * @param {Service} service
 * @returns {HTMLElement}
 */
export function serviceCard(service) {
  const entries = service.entries.map((entry) => element("li", {}, entry));
  const endpoints = service.endpoints.map((each) =>
    element("li", {}, element("strong", {}, each.name), ` ${each.text}`),
  );
  return card(service, [
    paragraph(service.address ? `Address: ${service.address}` : "No address yet.", "facts"),
    entries.length > 0 ? list("Entries", entries) : null,
    endpoints.length > 0
      ? list("Endpoints", endpoints)
      : paragraph("No endpoint receives requests.", "facts"),
  ]);
}

/**
 * @param {{key: string, name: string, link: string, state: State,
 *   notes: {type: string, text: string}[]}} shown
 * @param {(HTMLElement | null)[]} content
 * @returns {HTMLElement}
 */
function card(shown, content) {
  const notes = shown.notes.map((note) =>
    element("li", {}, element("strong", {}, note.type), `: ${note.text}`),
  );
  return element(
    "article",
    { class: "card", "data-key": shown.key },
    element("h3", {}, shown.name),
    element("p", { class: "state-line" }, badge(shown.state), ...workflow(shown.link, shown.name)),
    paragraph(shown.state.why, "why"),
    notes.length > 0 ? element("ul", { class: "notes" }, ...notes) : null,
    ...content,
  );
}

/**
 * @param {State} state
 * @returns {HTMLElement}
 */
function badge(state) {
  const sign = element("span", { "aria-hidden": "true" }, `${SIGNS[state.sort]} `);
  return element("span", { class: `state ${state.sort}` }, sign, state.word);
}

/**
 * @param {string} href may be empty
 * @param {string} name
 * @returns {(Node | string)[]}
 */
function workflow(href, name) {
  return href ? [" ", link(href, "workflow", `of ${name} in the Temporal UI`)] : [];
}

/**
 * @param {string} text
 * @param {string} name the CSS class
 * @returns {HTMLElement | null}
 */
function paragraph(text, name) {
  return text ? element("p", { class: name }, text) : null;
}

/**
 * @param {string} title
 * @param {HTMLElement[]} items
 * @returns {HTMLElement}
 */
function list(title, items) {
  return element("div", {}, element("h4", {}, title), element("ul", { class: "items" }, ...items));
}

/**
 * @param {Pool} shown
 * @returns {HTMLElement[]}
 */
function pool(shown) {
  const className = shown.className ? ` (${shown.className})` : "";
  const size = `${shown.nodes} nodes with ${shown.gpusPerNode} GPUs each${className}`;
  const use = `${shown.gpusUsed} of ${shown.nodes * shown.gpusPerNode} GPUs in use`;
  const occupants = shown.occupants.map((each) =>
    element(
      "li",
      {},
      element("span", { class: "mark" }, each.mark),
      ` ${each.name}: ${each.pods} ${each.pods === 1 ? "pod" : "pods"}, ${each.gpus} GPUs `,
      badge(each.state),
      ...workflow(each.link, each.name),
    ),
  );
  return [
    element("h4", {}, `Pool ${shown.name}`),
    paragraph([size, use, shown.present].filter(Boolean).join("; "), "facts"),
    cells(shown),
    shown.without > 0 ? paragraph(`${shown.without} pods do not fit on these nodes`, "why") : null,
    occupants.length > 0 ? element("ul", { class: "items" }, ...occupants) : null,
  ].filter((each) => each !== null);
}

/**
 * @param {Pool} shown
 * @returns {HTMLElement}
 */
function cells(shown) {
  const used = shown.cells.filter((cell) => cell.marks.length > 0);
  const free = shown.cells.length - used.length;
  const made = used.map((cell) => {
    const names = cell.names.join(", ");
    const eighths = Math.ceil((8 * cell.used) / Math.max(1, shown.gpusPerNode));
    const marks = cell.marks.length > 2 ? `${cell.marks[0]}+` : cell.marks.join("");
    return element(
      "li",
      { class: `cell fill-${Math.min(8, eighths)}`, title: names },
      element("span", { "aria-hidden": "true" }, marks),
      spoken(`${cell.used} of ${shown.gpusPerNode} GPUs: ${names}`),
    );
  });
  const empty = Array.from({ length: free }, () =>
    element("span", { class: "cell", "aria-hidden": "true" }),
  );
  const rest = shown.notDrawn > 0 ? `and ${shown.notDrawn} more nodes` : "";
  return element(
    "ul",
    { class: "cells", "aria-label": `Nodes of pool ${shown.name}` },
    ...made,
    free > 0 ? element("li", { class: "free" }, ...empty, spoken(`${free} free nodes`)) : null,
    rest ? element("li", { class: "rest" }, rest) : null,
  );
}

/**
 * @param {Replica} shown
 * @returns {HTMLElement}
 */
function replica(shown) {
  return element(
    "li",
    { "data-key": shown.name },
    element("strong", {}, shown.name),
    ` on ${shown.cluster || "no cluster"} `,
    badge(shown.state),
    ...workflow(shown.link, shown.name),
    paragraph(shown.state.why, "why"),
    ...shown.detail.map((text) => paragraph(text, "detail")),
    shown.teardown && progress(shown.teardown, shown.name),
  );
}

/**
 * @param {Progress} shown
 * @param {string} of
 * @returns {HTMLElement}
 */
function progress(shown, of) {
  const bar = element("progress", {
    value: String(shown.done),
    max: String(shown.total),
    "aria-label": `${shown.label} of ${of}`,
  });
  return element("p", { class: "progress" }, `${shown.label} `, bar, ` ${shown.text}`);
}
