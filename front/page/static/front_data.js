/**
 * The data that the page reads besides API objects: settings, the state of the control plane,
 * the use of capacity, traffic, and the explanation and metrics of the open deployment.
 *
 * @typedef {{at: number, pools?: any[], queues?: any[], namespaces?: any[], quotas?: any[]}} Capacity
 *   `at`: milliseconds since 1970; a part is missing if the user has no right to it
 * @typedef {{configured: boolean, at?: number, problem?: string,
 *   services?: Record<string, import("./traffic.js").Numbers>}} Traffic
 * @typedef {{owner: string, tree: any, problem: string, metrics: any}} Explained `tree` is null
 *   until it is read, and `metrics` if no autoscaler has any
 * @typedef {{token: string, namespace: string, changed: () => void}} Order
 */

const STATE_MS = 15_000;

export class FrontData {
  settings = { temporalUi: "", temporalNamespace: "" };
  /** @type {import("./problems.js").Advice} */
  advice = {};
  /** @type {import("./overview.js").FrontState | null} */
  state = null;
  /** @type {Capacity | null} */
  capacity = null;
  /** Why the capacity is unknown or old; empty if it is neither. */
  capacityProblem = "";
  /** @type {Traffic | null} */
  traffic = null;
  /** @type {Explained} */
  explained = { owner: "", tree: null, problem: "", metrics: null };
  /** The time of the server minus the time of the browser, in milliseconds. */
  skew = 0;
  /** @type {Order} */
  #order = { token: "", namespace: "", changed: () => {} };
  #signal = new AbortController().signal;

  /**
   * Reads until the signal is aborted.
   *
   * @param {Order} order
   * @param {AbortSignal} signal
   */
  start(order, signal) {
    this.#order = order;
    this.#signal = signal;
    void this.#readOnce(signal);
    void this.#repeat(signal);
  }

  /**
   * Explains another deployment from now on.
   *
   * @param {string} owner its full name; empty for none
   */
  explain(owner) {
    if (owner === this.explained.owner) return;
    this.explained = { owner, tree: null, problem: "", metrics: null };
    if (owner) void this.#readExplanation(this.#signal);
  }

  /** @param {AbortSignal} signal */
  async #readOnce(signal) {
    const [advice, settings] = await Promise.all([
      this.#read("/ui/advice.json", signal),
      this.#read("/ui/settings.json", signal),
    ]);
    if (signal.aborted) return;
    this.advice = advice.tree ?? this.advice;
    this.settings = settings.tree ?? this.settings;
    this.#order.changed();
  }

  /** @param {AbortSignal} signal */
  async #repeat(signal) {
    while (!signal.aborted) {
      await Promise.all([
        this.#readState(signal),
        this.#readCapacity(signal),
        this.#readTraffic(signal),
        this.#readExplanation(signal),
      ]);
      await new Promise((resolve) => setTimeout(resolve, STATE_MS));
    }
  }

  /** @param {AbortSignal} signal */
  async #readState(signal) {
    const { tree } = await this.#read(`/ui/state.json${this.#query()}`, signal);
    if (signal.aborted) return;
    if (tree) {
      this.state = tree;
      this.skew = tree.now - Date.now();
    }
    this.#order.changed();
  }

  /** @param {AbortSignal} signal */
  async #readCapacity(signal) {
    const { tree, problem } = await this.#read(`/ui/capacity.json${this.#query()}`, signal);
    if (signal.aborted) return;
    this.capacity = tree ?? this.capacity;
    this.capacityProblem = problem;
    this.#order.changed();
  }

  /** @param {AbortSignal} signal */
  async #readTraffic(signal) {
    const { tree } = await this.#read(`/ui/traffic.json${this.#query()}`, signal);
    if (signal.aborted) return;
    this.traffic = tree ?? this.traffic;
    this.#order.changed();
  }

  /** @param {AbortSignal} signal */
  async #readExplanation(signal) {
    const { owner } = this.explained;
    if (!owner) return;
    const [namespace, name] = owner.split("/").map(encodeURIComponent);
    const path = `/v1/namespaces/${namespace}/modeldeployments/${name}`;
    const [{ tree, problem }, metrics] = await Promise.all([
      this.#read(`${path}/explanation`, signal),
      this.#read(`${path}/metrics`, signal),
    ]);
    if (signal.aborted || owner !== this.explained.owner) return;
    this.explained = { owner, tree: tree ?? this.explained.tree, problem, metrics: metrics.tree };
    this.#order.changed();
  }

  /** @returns {string} */
  #query() {
    const { namespace } = this.#order;
    return namespace ? `?namespace=${encodeURIComponent(namespace)}` : "";
  }

  /**
   * @param {string} path
   * @param {AbortSignal} signal
   * @returns {Promise<{tree: any, problem: string}>} `tree` is null if the server refuses or does
   *   not answer
   */
  async #read(path, signal) {
    const { token } = this.#order;
    const headers = token ? { Authorization: `Bearer ${token}` } : undefined;
    try {
      const answer = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
      if (answer.ok) return { tree: await answer.json(), problem: "" };
      const status = await answer.json().catch(() => ({}));
      return { tree: null, problem: status.message ?? `the server answered ${answer.status}` };
    } catch {
      // The text about the connection says more.
      return { tree: null, problem: "the server does not answer" };
    }
  }
}
