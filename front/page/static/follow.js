/**
 * Follows one collection as all clients of a Kubernetes API do: a list, then a watch from its version on.
 *
 * @typedef {import("./watch_events.js").Known} Known
 * @typedef {import("./connection.js").Following} Following
 * @typedef {{path: string, token: string, known: Known | null, changed: (known: Known | null) => void,
 *   told: (following: Following) => void}} Order
 *   `known`: what an earlier call knew; `changed` gets null when nothing may be read any more
 */

import { waitAfter } from "./connection.js";
import { Expired, Lines, afterEvent, fromList } from "./watch_events.js";

const ANSWER_MS = 20_000;
// The server sends a bookmark each minute in which nothing else happens.
const SILENCE_MS = 90_000;
const REFUSED_AGAIN_MS = 30_000;
// A watch that ends sooner is not begun again at once.
const SHORT_WATCH_MS = 1_000;

class Refused extends Error {
  /**
   * @param {number} code of HTTP
   * @param {string} message
   */
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/**
 * Follows until the signal is aborted.
 *
 * @param {Order} order
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export async function follow(order, signal) {
  let known = order.known;
  let failures = 0;
  let lostAt = 0;
  const live = () => {
    failures = 0;
    lostAt = 0;
    order.told({ sort: "live" });
  };
  while (!signal.aborted) {
    try {
      if (known === null) {
        known = fromList(JSON.parse(await whole(order, signal)));
        order.changed(known);
      }
      const began = Date.now();
      for await (const next of watched(order, known, signal, live)) {
        known = next;
        order.changed(known);
      }
      if (Date.now() - began < SHORT_WATCH_MS) await pause(SHORT_WATCH_MS, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused) {
        known = null;
        lostAt = 0;
        order.changed(null);
        order.told({ sort: "refused", code: error.code, why: error.message });
        await pause(REFUSED_AGAIN_MS, signal);
        continue;
      }
      failures += 1;
      if (error instanceof Expired) {
        known = null;
        // The list is read at once; only a server that says it again has to wait.
        if (failures === 1) continue;
      }
      lostAt = lostAt || Date.now();
      order.told({ sort: "lost", since: lostAt, why: whyOf(error) });
      await pause(waitAfter(failures, Math.random()), signal);
    }
  }
}

/**
 * @param {unknown} error
 * @returns {string}
 */
function whyOf(error) {
  // What browsers say of a connection that fails differs, and helps nobody.
  if (error instanceof TypeError) return "the server cannot be reached";
  return error instanceof Error ? error.message : String(error);
}

/**
 * @param {Order} order
 * @param {AbortSignal} signal
 * @returns {Promise<string>}
 */
async function whole(order, signal) {
  const limit = new Limit(signal);
  try {
    limit.within(ANSWER_MS);
    return await (await answered(order.path, order.token, limit)).text();
  } finally {
    limit.end();
  }
}

/**
 * Gives what is known after each part of a watch that arrives.
 *
 * @param {Order} order
 * @param {Known} from
 * @param {AbortSignal} signal
 * @param {() => void} begun is called when the watch is answered
 * @returns {AsyncGenerator<Known>}
 */
async function* watched(order, from, signal, begun) {
  const limit = new Limit(signal);
  try {
    limit.within(ANSWER_MS);
    const query = `?watch=1&allowWatchBookmarks=true&resourceVersion=${encodeURIComponent(from.version)}`;
    const answer = await answered(order.path + query, order.token, limit);
    begun();
    const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
    const decoder = new TextDecoder();
    const lines = new Lines();
    let known = from;
    for (;;) {
      limit.within(SILENCE_MS);
      const { done, value } = await reader.read();
      if (done) return;
      for (const line of lines.add(decoder.decode(value, { stream: true }))) known = afterEvent(known, JSON.parse(line));
      yield known;
    }
  } finally {
    limit.end();
  }
}

/**
 * @param {string} path
 * @param {string} token
 * @param {Limit} limit
 * @returns {Promise<Response>}
 */
async function answered(path, token, limit) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { headers, signal: limit.signal, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    throw limit.isOver ? new Error("the server does not answer in time") : error;
  }
  if (answer.ok) return answer;
  const message = await messageOf(answer);
  const isRefusal = answer.status >= 400 && answer.status < 500 && ![408, 410, 429].includes(answer.status);
  if (isRefusal) throw new Refused(answer.status, message);
  throw answer.status === 410 ? new Expired(message) : new Error(message);
}

/**
 * @param {Response} answer
 * @returns {Promise<string>} what a Status says, else the code
 */
async function messageOf(answer) {
  const text = await answer.text();
  try {
    return String(JSON.parse(text).message || `the server answers ${answer.status}`);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return `the server answers ${answer.status}`;
  }
}

/** Ends a request with a signal from outside, or when the time that was set last is over. */
class Limit {
  #controller = new AbortController();
  #timer = 0;
  isOver = false;

  /** @param {AbortSignal} outer */
  constructor(outer) {
    this.signal = AbortSignal.any([outer, this.#controller.signal]);
  }

  /** @param {number} milliseconds from now */
  within(milliseconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.isOver = true;
      this.#controller.abort(new Error("the server does not answer in time"));
    }, milliseconds);
  }

  /** Ends the request too, if it goes on. */
  end() {
    clearTimeout(this.#timer);
    this.#controller.abort(new Error("the request is not needed any more"));
  }
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>} resolves when the time is over or the signal aborted
 */
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
  });
}
