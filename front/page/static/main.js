/** The page: follows the collections and shows their objects. */

import { clusterCard, deploymentCard, serviceCard } from "./cards.js";
import { announcement, statesByName } from "./changes.js";
import { clustersShown } from "./clusters.js";
import { connectionLine, refusalText } from "./connection.js";
import { element, showChildren } from "./elements.js";
import { follow } from "./follow.js";
import { deploymentsShown, servicesShown } from "./workloads.js";

/** @typedef {import("./watch_events.js").Known} Known */
/** @typedef {import("./connection.js").Following} Following */

const API = "/apis/modelplane.ai/v1alpha1";
const TOKEN = "modelplane-token";
const NAMESPACE = "modelplane-namespace";
const DRAW_MS = 100;
const ANNOUNCE_MS = 2_000;
// Browsers allow six connections per server, and each watch takes one. A hidden tab closes its
// watches to leave connections for other tabs.
const HIDDEN_MS = 5_000;

const COLLECTIONS = [
  { plural: "inferenceclusters", namespaced: false },
  { plural: "modeldeployments", namespaced: true },
  { plural: "modelreplicas", namespaced: true },
  { plural: "modelservices", namespaced: true },
].map((each) => ({
  ...each,
  known: /** @type {Known | null} */ (null),
  following: /** @type {Following} */ ({ sort: "connecting" }),
}));
const [CLUSTERS, DEPLOYMENTS, REPLICAS, SERVICES] = COLLECTIONS;

let settings = { temporalUi: "", temporalNamespace: "" };
let token = sessionStorage.getItem(TOKEN) ?? "";
let namespace = sessionStorage.getItem(NAMESPACE) ?? "";
let running = new AbortController();
let drawing = 0;
let hiding = 0;
/** @type {{sort: string, text: string} | null} replaces the text about the connection */
let badToken = null;
/** @type {Map<string, string> | null} */
let toldBefore = null;
/** The content of each card, so that only changed cards are rendered again. */
const shownBefore = new WeakMap();

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

function start() {
  running.abort();
  running = new AbortController();
  const signal = running.signal;
  void readSettings(signal);
  for (const collection of COLLECTIONS) {
    collection.following = { sort: "connecting" };
    const isLimited = collection.namespaced && namespace;
    const where = isLimited ? `/namespaces/${encodeURIComponent(namespace)}` : "";
    const order = {
      path: `${API}${where}/${collection.plural}`,
      token,
      known: collection.known,
      changed: (/** @type {Known | null} */ known) => {
        if (signal.aborted) return;
        collection.known = known;
        drawSoon();
      },
      told: (/** @type {Following} */ following) => {
        if (signal.aborted) return;
        collection.following = following;
        drawSoon();
      },
    };
    void follow(order, signal);
  }
  drawSoon();
}

/** @param {AbortSignal} signal */
async function readSettings(signal) {
  const headers = token ? { Authorization: `Bearer ${token}` } : undefined;
  try {
    const answer = await fetch("/ui/settings.json", {
      headers,
      signal,
      cache: "no-store",
      credentials: "omit",
    });
    if (answer.ok) settings = await answer.json();
    drawSoon();
  } catch (error) {
    // Without the settings, there are no links to the Temporal UI. If the server does not
    // answer, the text about the connection contains the reason.
    if (!signal.aborted) console.info("cannot load the settings of the page", error);
  }
}

/**
 * @param {typeof CLUSTERS} collection
 * @returns {Known["objects"]}
 */
function objects(collection) {
  return collection.known?.objects ?? new Map();
}

function drawSoon() {
  drawing = drawing || setTimeout(draw, DRAW_MS);
}

function draw() {
  drawing = 0;
  const line = badToken ?? connectionLine(
    COLLECTIONS.map((each) => each.following),
    (milliseconds) => new Date(milliseconds).toLocaleTimeString(),
  );
  const connection = byId("connection");
  connection.className = line.sort;
  // Set it only when it changes, because screen readers announce it.
  if (connection.textContent !== line.text) connection.textContent = line.text;
  const shown = {
    clusters: clustersShown(objects(CLUSTERS), objects(REPLICAS), settings),
    deployments: deploymentsShown(objects(DEPLOYMENTS), objects(REPLICAS), settings),
    services: servicesShown(objects(SERVICES), settings),
  };
  section("clusters", shown.clusters, clusterCard, [CLUSTERS], "No clusters.");
  section(
    "deployments",
    shown.deployments,
    deploymentCard,
    [DEPLOYMENTS, REPLICAS],
    "No deployments.",
  );
  section("services", shown.services, serviceCard, [SERVICES], "No services.");
  // The first objects are not announced as changes.
  if (toldBefore === null) announce();
}

/**
 * @template {{key: string}} T
 * @param {string} id
 * @param {T[]} shown
 * @param {(shown: T) => HTMLElement} make
 * @param {typeof COLLECTIONS} collections the source of the content
 * @param {string} none the text of an empty section
 */
function section(id, shown, make, collections, none) {
  const parent = byId(id);
  const held = new Map([...parent.children].map((card) => [card.getAttribute("data-key"), card]));
  /** @type {Node[]} */
  const cards = shown.map((each) => {
    const text = JSON.stringify(each);
    const before = held.get(each.key);
    if (before && shownBefore.get(before) === text) return before;
    const made = make(each);
    shownBefore.set(before ?? made, text);
    return made;
  });
  const texts = collections
    .map((each) => refusalText(each.following, { namespaced: each.namespaced, namespace }))
    .filter(Boolean);
  if (shown.length === 0 && texts.length === 0) {
    const isRead = collections.every((each) => each.known !== null);
    texts.push(isRead ? none : "Not loaded yet.");
  }
  showChildren(parent, [...texts.map((text) => element("p", { class: "facts" }, text)), ...cards]);
}

function announce() {
  if (COLLECTIONS.some((each) => each.known === null && each.following.sort !== "refused")) return;
  const now = new Map([
    ...statesByName("Cluster", clustersShown(objects(CLUSTERS), new Map(), settings)),
    ...statesByName("Deployment", deploymentsShown(objects(DEPLOYMENTS), new Map(), settings)),
    ...statesByName("Service", servicesShown(objects(SERVICES), settings)),
  ]);
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
  forgetObjects();
  start();
}

function forgetObjects() {
  settings = { temporalUi: "", temporalNamespace: "" };
  toldBefore = null;
  for (const collection of COLLECTIONS) collection.known = null;
}

function forget() {
  input("token").value = "";
  token = "";
  badToken = null;
  sessionStorage.removeItem(TOKEN);
  forgetObjects();
  start();
}

function visibilityChanged() {
  clearTimeout(hiding);
  if (document.visibilityState === "hidden") {
    hiding = setTimeout(() => {
      running.abort();
      for (const collection of COLLECTIONS) collection.following = { sort: "paused" };
      drawSoon();
    }, HIDDEN_MS);
  } else if (running.signal.aborted) start();
}

input("token").value = token;
input("namespace").value = namespace;
byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  connect();
});
byId("forget").addEventListener("click", forget);
document.addEventListener("visibilitychange", visibilityChanged);
setInterval(announce, ANNOUNCE_MS);
start();
