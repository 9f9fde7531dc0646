/** The page: follows the collections, and shows problems, the fleet and the open object. */

import { chargeText, ledgerOf, total } from "./capacity.js";
import { announcement, stateWords } from "./changes.js";
import { COLLECTIONS, allObjects, collection, followAll, forgetObjects } from "./collections.js";
import { connectionLine, refusalText } from "./connection.js";
import { explainedBy } from "./decisions.js";
import { detail } from "./detail.js";
import { element, showChildren } from "./elements.js";
import { newestEvents } from "./events.js";
import { regionsShown } from "./fleet.js";
import { FrontData } from "./front_data.js";
import { RowList } from "./lists.js";
import { fragmentOf, viewOf } from "./location.js";
import { healthTiles, summaryTiles, sumsOf } from "./overview.js";
import { controlPlaneProblems, problemsShown } from "./problems.js";
import { quotaSection } from "./quotas.js";
import { eventRow, objectRow, poolRow, problemRow, quotaRow, regionRow, regionText } from "./rows.js";
import { matcher } from "./search.js";
import { byName, fullName } from "./states.js";
import { trafficNote, trafficText } from "./traffic.js";
import { byDeployment } from "./workloads.js";

const TOKEN = "modelplane-token";
const NAMESPACE = "modelplane-namespace";
const THEME = "modelplane-theme";
const DRAW_MS = 100;
const REST_MS = 2_000;
const EVENTS_MS = 2_000;
const AGES_MS = 5_000;
const ANNOUNCE_MS = 2_000;
// Browsers allow six connections per server, and each watch takes one. A hidden tab closes its
// watches to leave connections for other tabs.
const HIDDEN_MS = 5_000;
// With more clusters, regions are closed until a reader opens them or searches.
const OPEN_CLUSTERS = 60;
const OTHERS = ["ModelCache", "InferenceClass", "InferenceGateway", "ModelEndpoint"];

let front = new FrontData();
let token = sessionStorage.getItem(TOKEN) ?? "";
let namespace = sessionStorage.getItem(NAMESPACE) ?? "";
let view = viewOf(location.hash);
let running = new AbortController();
let drawing = 0;
let isDue = false;
let hiding = 0;
let eventsDrawn = 0;
let eventsDue = 0;
/** @type {Map<string, boolean>} the regions that the reader opened or closed */
const regionsOpen = new Map();
/** @type {{sort: string, text: string} | null} replaces the text about the connection */
let badToken = null;
/** @type {Map<string, string> | null} */
let toldBefore = null;

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * @param {string} id
 * @returns {HTMLInputElement}
 */
function input(id) {
  return /** @type {HTMLInputElement} */ (byId(id));
}

const lists = new Map(
  ["clusters", "quotas", "services", "deployments", "others", "events"].map((id) => {
    const parent = byId(id);
    return [id, new RowList(parent, parent.getAttribute("aria-label") ?? id)];
  }),
);

/** @returns {number} the time of the server, in milliseconds since 1970 */
function clock() {
  return Date.now() + front.skew;
}

function start() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  front.start({ token, namespace, changed: drawSoon }, signal);
  followAll({ token, namespace, changed: drawSoon }, signal);
  drawSoon();
}

function drawSoon() {
  if (drawing) isDue = true;
  else drawing = setTimeout(timedDraw, DRAW_MS);
}

/** Draws, and then less often on a slow machine, so that the page reacts to its reader. */
function timedDraw() {
  isDue = false;
  const began = performance.now();
  draw();
  const rest = Math.min(REST_MS, 2 * (performance.now() - began));
  drawing = setTimeout(() => {
    drawing = 0;
    if (isDue) drawSoon();
  }, rest);
}

function draw() {
  showConnection();
  const objects = allObjects();
  const matches = matcher(view);
  const now = clock();
  const tick = Math.floor(now / AGES_MS);
  const problems = [
    ...controlPlaneProblems(front.state),
    ...problemsShown(objects, front.advice, now),
  ];
  showProblems(problems, objects, matches, now);
  const replicas = collection("ModelReplica");
  const isPartial = Boolean(namespace) || replicas.following.sort === "refused";
  const regions = regionsShown(
    collection("InferenceCluster").known?.objects ?? new Map(),
    replicas.known?.objects ?? new Map(),
    ledgerOf(front.capacity, isPartial),
  );
  showClusters(regions, matches, now, tick);
  showQuotas(objects, now, tick);
  const owned = byDeployment(objects.get("ModelReplica") ?? new Map());
  showObjects("services", ["ModelService"], "No services.", matches, owned, now, tick);
  const note = (collection("ModelService").known?.objects.size ?? 0) > 0 ? trafficNote(front.traffic, now) : "";
  showChildren(byId("traffic-note"), note ? [element("p", { class: "quiet" }, note)] : []);
  showObjects("deployments", ["ModelDeployment"], "No deployments.", matches, owned, now, tick);
  showObjects("others", OTHERS, "None.", matches, owned, now, tick);
  showEvents(objects, matches, now, tick);
  showSums(problems, regions, now);
  showDetail(problems, objects, now);
  // The first objects are not announced as changes.
  if (toldBefore === null) announce();
}

function showConnection() {
  const line = badToken ?? connectionLine(
    COLLECTIONS.map((each) => each.following),
    (milliseconds) => new Date(milliseconds).toLocaleTimeString(),
  );
  const connection = byId("connection");
  connection.className = line.sort;
  // Set it only when it changes, because screen readers announce it.
  if (connection.textContent !== line.text) connection.textContent = line.text;
  const isRefused = COLLECTIONS.some((each) => each.following.sort === "refused");
  if ((badToken || isRefused) && !accessShown) {
    accessShown = true;
    byId("access-box").setAttribute("open", "");
  }
}

let accessShown = false;

/**
 * Shows why a section is empty.
 *
 * @param {string} id
 * @param {string[]} kinds the source of the content
 * @param {boolean} isEmpty
 * @param {string} none the text of an empty section
 */
function showNotes(id, kinds, isEmpty, none) {
  const sources = kinds.map(collection);
  const refusals = sources
    .map((each) => refusalText(each.following, { namespaced: each.namespaced, namespace }))
    .filter(Boolean);
  const texts = [...new Set(refusals)];
  if (isEmpty && texts.length === 0) {
    const isRead = sources.every((each) => each.known !== null);
    const isFiltered = Boolean(view.search || view.unready);
    texts.push(!isRead ? "Not loaded yet." : isFiltered ? "Nothing matches the search." : none);
  }
  showChildren(byId(`${id}-notes`), texts.map((text) => element("p", { class: "quiet" }, text)));
}

/**
 * @param {import("./problems.js").Problem[]} problems
 * @param {ReturnType<typeof allObjects>} objects
 * @param {(kind: string, tree: any) => boolean} matches
 * @param {number} now
 */
function showProblems(problems, objects, matches, now) {
  const finder = (/** @type {string} */ kind) => (/** @type {string} */ name) => {
    const key = name.includes("/") ? name : `/${name}`;
    return objects.get(kind)?.get(key);
  };
  const isWanted = (/** @type {import("./problems.js").Problem} */ each) => {
    const find = finder(each.kind);
    return !view.search || each.names.some((name) => {
      const tree = find(name);
      return !tree || matches(each.kind, tree);
    });
  };
  const shown = problems.filter(isWanted);
  const most = 100;
  const rows = shown.slice(0, most).map((each) => problemRow(each, finder(each.kind), now));
  if (shown.length > most) rows.push(element("li", { "data-key": "more" }, `and ${shown.length - most} more`));
  const list = byId("problems");
  list.classList.toggle("empty", rows.length === 0);
  showChildren(list, rows.length > 0 ? [element("ul", { class: "rows", "aria-label": "Problems" }, ...rows)] : []);
  const isRead = COLLECTIONS.some((each) => each.known !== null);
  const none = isRead ? "No problems." : "Not loaded yet.";
  showChildren(byId("problems-notes"), rows.length > 0 ? [] : [element("p", { class: "quiet" }, none)]);
}

/**
 * @param {import("./fleet.js").Region[]} regions
 * @param {(kind: string, tree: any) => boolean} matches
 * @param {number} now
 * @param {number} tick
 */
function showClusters(regions, matches, now, tick) {
  const count = regions.reduce((sum, each) => sum + each.clusters.length, 0);
  const isOpenFirst = count <= OPEN_CLUSTERS || Boolean(view.search || view.unready);
  /** @type {import("./lists.js").Row[]} */
  const rows = [];
  for (const region of regions) {
    const clusters = region.clusters.filter((each) => matches("InferenceCluster", each.tree));
    if (clusters.length === 0) continue;
    const isOpen = regionsOpen.get(region.name) ?? isOpenFirst;
    const content = [isOpen, clusters.length, region.notReady, regionText(region)];
    rows.push({ key: `region ${region.name}`, content, make: () => regionRow(region, isOpen) });
    if (!isOpen) continue;
    for (const cluster of clusters) {
      for (let at = 0; at < Math.max(1, cluster.pools.length); at += 1) {
        const pool = cluster.pools[at];
        const charge = pool ? `${chargeText(pool.charge)} ${pool.unit}` : "";
        const aged = cluster.state.sort === "ready" && !cluster.closed ? 0 : tick;
        rows.push({
          key: `${cluster.name} ${at}`,
          content: [cluster.tree, charge, aged],
          make: () => poolRow(cluster, at, now),
        });
      }
    }
  }
  lists.get("clusters")?.show(rows);
  showNotes("clusters", ["InferenceCluster"], rows.length === 0, "No clusters.");
  const ofDevices = regions.some((each) => total(each.devices) > 0) ? " In pools with device accounting a cell is a device." : "";
  const legend = `A cell is a node, as the scheduler charges it: used, held for replicas that start or end, free, wasted, draining, silent.${ofDevices}`;
  if (byId("legend").textContent !== legend) byId("legend").textContent = legend;
}

/**
 * @param {ReturnType<typeof allObjects>} objects
 * @param {number} now
 * @param {number} tick
 */
function showQuotas(objects, now, tick) {
  const deployments = objects.get("ModelDeployment") ?? new Map();
  const { rows, texts } = quotaSection(front.capacity, front.capacityProblem, deployments, view, now);
  lists.get("quotas")?.show(rows.map((each) => ({
    key: each.key,
    content: [each.word, each.facts, each.command, tick],
    make: () => quotaRow(each),
  })));
  showChildren(byId("quotas-notes"), texts.map((text) => element("p", { class: "quiet" }, text)));
}

/**
 * @param {string} id of the section
 * @param {string[]} kinds
 * @param {string} none
 * @param {(kind: string, tree: any) => boolean} matches
 * @param {Map<string, any[]>} owned replicas by deployment
 * @param {number} now
 * @param {number} tick
 */
function showObjects(id, kinds, none, matches, owned, now, tick) {
  const rows = kinds.flatMap((kind) =>
    [...(collection(kind).known?.objects.values() ?? [])]
      .filter((tree) => matches(kind, tree))
      .sort(byName)
      .map((tree) => {
        const replicas = kind === "ModelDeployment" ? (owned.get(fullName(tree)) ?? []) : [];
        const numbers = kind === "ModelService" ? front.traffic?.services?.[fullName(tree)] : undefined;
        const content = [tree, tick, replicas.map((each) => each.spec?.clusterName).join(), trafficText(numbers)];
        return { key: `${kind} ${fullName(tree)}`, content, make: () => objectRow(kind, tree, replicas, numbers, now) };
      }),
  );
  lists.get(id)?.show(rows);
  const sources = id === "deployments" ? [...kinds, "ModelReplica"] : kinds;
  showNotes(id, sources, rows.length === 0, none);
}

/**
 * @param {ReturnType<typeof allObjects>} objects
 * @param {(kind: string, tree: any) => boolean} matches
 * @param {number} now
 * @param {number} tick
 */
function showEvents(objects, matches, now, tick) {
  if (now - eventsDrawn < EVENTS_MS) {
    eventsDue = eventsDue || setTimeout(drawSoon, EVENTS_MS);
    return;
  }
  clearTimeout(eventsDue);
  eventsDue = 0;
  eventsDrawn = now;
  const rows = newestEvents(objects, matches).map((each) => ({
    key: [each.kind, fullName(each.tree), each.reason, each.message].join("\n"),
    content: [each.last, each.count, tick],
    make: () => eventRow(each, now),
  }));
  const unique = [...new Map(rows.map((row) => [row.key, row])).values()];
  lists.get("events")?.show(unique);
  const texts = unique.length > 0 ? [] : [element("p", { class: "quiet" }, "No events.")];
  showChildren(byId("events-notes"), texts);
}

/**
 * @param {import("./problems.js").Problem[]} problems
 * @param {import("./fleet.js").Region[]} regions
 * @param {number} now
 */
function showSums(problems, regions, now) {
  const sums = sumsOf(problems, regions, collection("ModelDeployment").known?.objects ?? new Map());
  showChildren(byId("health"), healthTiles(front.state, now));
  showChildren(byId("summary"), summaryTiles(sums, front.state));
}

/**
 * @param {import("./problems.js").Problem[]} problems
 * @param {ReturnType<typeof allObjects>} objects
 * @param {number} now
 */
function showDetail(problems, objects, now) {
  const { opened } = view;
  const panel = byId("detail");
  panel.hidden = opened === null;
  document.body.classList.toggle("with-detail", opened !== null);
  if (!opened) return;
  const tree = objects.get(opened.kind)?.get(`${opened.namespace}/${opened.name}`);
  front.explain(explainedBy(opened.kind, tree));
  const title = [opened.namespace, opened.name].filter(Boolean).join("/");
  if (byId("detail-title").textContent !== title) byId("detail-title").textContent = title;
  const problem = problems.find((each) => each.kind === opened.kind && each.names.includes(title));
  const content = tree
    ? detail(opened.kind, tree, objects, problem, front, now)
    : [element("p", {}, `There is no ${opened.kind} ${title} that this token may read.`)];
  showChildren(byId("detail-content"), content);
}

function announce() {
  if (COLLECTIONS.some((each) => each.known === null && each.following.sort !== "refused")) return;
  const now = stateWords(allObjects());
  const text = toldBefore ? announcement(toldBefore, now) : "";
  toldBefore = now;
  if (text) byId("news").textContent = text;
}

/** Connects again with the token and namespace in the form. */
function connect() {
  const wanted = input("token").value.trim();
  const isToken = /^[\x21-\x7e]*$/.test(wanted);
  if (!isToken) {
    badToken = {
      sort: "problem",
      text: "This is not a valid token: tokens have no spaces and only ASCII characters.",
    };
    drawSoon();
    return;
  }
  badToken = null;
  token = wanted;
  namespace = input("namespace").value.trim();
  sessionStorage.setItem(TOKEN, token);
  sessionStorage.setItem(NAMESPACE, namespace);
  forgetAll();
  start();
}

function forgetAll() {
  front = new FrontData();
  toldBefore = null;
  eventsDrawn = 0;
  forgetObjects();
}

function forget() {
  input("token").value = "";
  token = "";
  badToken = null;
  sessionStorage.removeItem(TOKEN);
  forgetAll();
  start();
}

function visibilityChanged() {
  clearTimeout(hiding);
  if (document.visibilityState === "hidden") {
    hiding = setTimeout(() => {
      running.abort();
      for (const each of COLLECTIONS) each.following = { sort: "paused" };
      drawSoon();
    }, HIDDEN_MS);
  } else if (running.signal.aborted) start();
}

/** @param {Partial<typeof view>} changes */
function go(changes) {
  const before = view;
  view = { ...view, ...changes };
  const fragment = fragmentOf(view);
  const isSearch = !("opened" in changes);
  history[isSearch ? "replaceState" : "pushState"](null, "", fragment);
  shown(before);
}

/** @param {typeof view} before */
function shown(before) {
  eventsDrawn = 0;
  input("search").value = view.search;
  input("unready").checked = view.unready;
  clearTimeout(drawing);
  drawing = 0;
  draw();
  if (view.opened && JSON.stringify(view.opened) !== JSON.stringify(before.opened)) {
    byId("detail").scrollTop = 0;
    byId("detail-title").focus();
  }
}

/** @type {HTMLElement | null} the link that opened the detail view */
let opener = null;

function close() {
  if (!view.opened) return;
  go({ opened: null });
  (opener?.isConnected ? opener : byId("fleet")).focus();
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  const isTyping = event.target instanceof HTMLInputElement;
  if (event.key === "Escape") close();
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    input("search").focus();
  }
}

/** @param {MouseEvent} event */
function clicked(event) {
  const target = /** @type {Element} */ (event.target);
  const region = target.closest("[data-region]");
  if (region) {
    const isOpen = region.getAttribute("aria-expanded") === "true";
    regionsOpen.set(region.getAttribute("data-region") ?? "", !isOpen);
    shown(view);
  }
  const link = /** @type {HTMLAnchorElement | null} */ (target.closest("a.object"));
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (!link.closest("#detail")) opener = link;
  go({ opened: viewOf(link.hash).opened });
}

/** @param {string} theme empty follows the system */
function showTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  const isDark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  byId("theme").textContent = isDark ? "Light" : "Dark";
}

input("token").value = token;
input("namespace").value = namespace;
input("search").value = view.search;
input("unready").checked = view.unready;
showTheme(sessionStorage.getItem(THEME) ?? "");
byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  connect();
});
byId("forget").addEventListener("click", forget);
byId("close").addEventListener("click", close);
byId("theme").addEventListener("click", () => {
  const theme = byId("theme").textContent === "Dark" ? "dark" : "light";
  sessionStorage.setItem(THEME, theme);
  showTheme(theme);
});
input("search").addEventListener("input", () => go({ search: input("search").value.trim() }));
input("unready").addEventListener("change", () => go({ unready: input("unready").checked }));
document.addEventListener("keydown", pressed);
document.addEventListener("click", clicked);
document.addEventListener("visibilitychange", visibilityChanged);
window.addEventListener("popstate", () => {
  const before = view;
  // The link to skip to the fleet is no view.
  if (location.hash === "#fleet") return;
  view = viewOf(location.hash);
  shown(before);
});
window.addEventListener("resize", drawSoon);
setInterval(announce, ANNOUNCE_MS);
setInterval(drawSoon, AGES_MS);
start();
