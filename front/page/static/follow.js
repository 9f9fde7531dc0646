/**
 * Follows a collection like every Kubernetes client: lists it, then watches from that version.
 *
 * @typedef {import("./watch_events.js").Known} Known
 * @typedef {import("./connection.js").Following} Following
 * @typedef {{path: string, token: string, known: Known | null,
 *   changed: (known: Known | null) => void, told: (following: Following) => void}} Order
 *   `known` is the state of an earlier call; `changed` receives null after the right to read
 *   is lost
 */

import { waitAfter } from "./connection.js";
import { Expired, Lines, afterEvent, fromList } from "./watch_events.js";

const ANSWER_MS = 20_000;
// The server sends a bookmark after each minute without other events.
const SILENCE_MS = 90_000;
const REFUSED_AGAIN_MS = 30_000;
const REREAD_MS = 15_000;
// After a shorter watch, the next one starts with a delay.
const SHORT_WATCH_MS = 1_000;

class Refused extends Error {
  /**
   * @param {number} code the HTTP status
   * @param {string} message
   */
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/**
 * Follows the collection until the signal is aborted.
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
        // List again at once, and wait only if the version expires again.
        if (failures === 1) continue;
      }
      lostAt = lostAt || Date.now();
      order.told({ sort: "lost", since: lostAt, why: whyOf(error) });
      await pause(waitAfter(failures, Math.random()), signal);
    }
  }
}

/**
 * Lists the collection again and again until the signal is aborted. For collections that
 * change rarely: each watch needs one of the six connections that a browser opens.
 *
 * @param {Order} order
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export async function reread(order, signal) {
  let lostAt = 0;
  while (!signal.aborted) {
    let wait = REREAD_MS;
    try {
      order.changed(fromList(JSON.parse(await whole(order, signal))));
      order.told({ sort: "live" });
      lostAt = 0;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused) {
        order.changed(null);
        order.told({ sort: "refused", code: error.code, why: error.message });
        wait = REFUSED_AGAIN_MS;
      } else {
        lostAt = lostAt || Date.now();
        order.told({ sort: "lost", since: lostAt, why: whyOf(error) });
      }
    }
    await pause(wait, signal);
  }
}

/**
 * @param {unknown} error
 * @returns {string}
 */
function whyOf(error) {
  // The messages of browsers for failed connections differ and do not help users.
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
 * Yields the known objects after each received part of a watch.
 *
 * @param {Order} order
 * @param {Known} from
 * @param {AbortSignal} signal
 * @param {() => void} begun is called when the response begins
 * @returns {AsyncGenerator<Known>}
 */
async function* watched(order, from, signal, begun) {
  const limit = new Limit(signal);
  try {
    limit.within(ANSWER_MS);
    const version = encodeURIComponent(from.version);
    const query = `?watch=1&allowWatchBookmarks=true&resourceVersion=${version}`;
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
      for (const line of lines.add(decoder.decode(value, { stream: true }))) {
        known = afterEvent(known, JSON.parse(line));
      }
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
    answer = await fetch(path, {
      headers,
      signal: limit.signal,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
  } catch (error) {
    throw limit.isOver ? new Error("the server does not answer in time") : error;
  }
  if (answer.ok) return answer;
  const message = await messageOf(answer);
  const isClientError = answer.status >= 400 && answer.status < 500;
  const isRefusal = isClientError && ![408, 410, 429].includes(answer.status);
  if (isRefusal) throw new Refused(answer.status, message);
  throw answer.status === 410 ? new Expired(message) : new Error(message);
}

/**
 * @param {Response} answer
 * @returns {Promise<string>} the message of the Status, or the HTTP status
 */
async function messageOf(answer) {
  const text = await answer.text();
  try {
    return String(JSON.parse(text).message || `the server returned HTTP status ${answer.status}`);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return `the server returned HTTP status ${answer.status}`;
  }
}

/** Aborts a request with an outer signal, or after the time limit that was set last. */
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

  /** Stops the timer, and aborts the request if it is still running. */
  end() {
    clearTimeout(this.#timer);
    this.#controller.abort(new Error("the request is no longer needed"));
  }
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>} resolves after the time, or when the signal is aborted
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
