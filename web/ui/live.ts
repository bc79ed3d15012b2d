/**
 * The live connection of a tab: a snapshot, then the event stream from its sequence number on.
 *
 * One stream per tab, and none while the tab is hidden (a browser allows six connections to a server). Whatever ends
 * the stream, it is opened again after a pause with the last number seen; if that cannot help, the snapshot is
 * fetched anew.
 */

import { useEffect, useState } from "preact/hooks";
import { Refused, get, type Event, type Snapshot } from "./api";
import { advance, fromSnapshot, joined, type RunState } from "./state";

export type Link = "loading" | "live" | "waiting";

export interface View {
  state: RunState | null;
  link: Link;
  /** A sentence of the server: why there is nothing to show. */
  refusal: string | null;
}

const FIRST_PAUSE_MS = 300;
const LONGEST_PAUSE_MS = 5000;
/** The server says something at least every 15 s; a stream silent for longer is dead (a laptop that slept). */
const SILENCE_MS = 40_000;

export class LiveRun {
  view: View = { state: null, link: "loading", refusal: null };
  private readonly listeners = new Set<() => void>();
  private source: EventSource | null = null;
  private timer = 0;
  private watchdog = 0;
  private pause = FIRST_PAUSE_MS;
  private queue: Event[] = [];
  private frame = 0;
  private loading = false;
  private closed = false;

  constructor(readonly id: number) {
    document.addEventListener("visibilitychange", this.onVisibility);
    void this.load();
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  close(): void {
    this.closed = true;
    document.removeEventListener("visibilitychange", this.onVisibility);
    cancelAnimationFrame(this.frame);
    this.disconnect();
  }

  /** Take over samples of the past, older than those the stream brought. */
  addHistory(samples: RunState["samples"]): void {
    const { state } = this.view;
    if (!state) return;
    this.set({ state: { ...state, samples: joined(samples, state.samples) } });
  }

  private set(change: Partial<View>): void {
    this.view = { ...this.view, ...change };
    for (const listener of this.listeners) listener();
  }

  private readonly onVisibility = (): void => {
    if (document.hidden) this.disconnect();
    else if (!this.source) this.resume();
  };

  private resume(): void {
    if (this.closed || document.hidden) return;
    const { state } = this.view;
    if (state && !state.lost) this.connect();
    else void this.load();
  }

  private async load(): Promise<void> {
    if (this.loading) return;
    this.loading = true;
    try {
      const snapshot = await get<Snapshot>(`/api/runs/${this.id}`);
      if (this.closed) return;
      this.set({ state: fromSnapshot(snapshot, this.view.state?.samples), refusal: null });
      this.connect();
    } catch (error) {
      // What is not there may come: a run can be looked for before it is recorded.
      if (error instanceof Refused && !error.temporary) this.set({ refusal: error.message });
      this.retry();
    } finally {
      this.loading = false;
    }
  }

  private connect(): void {
    this.disconnect();
    const { state } = this.view;
    if (this.closed || document.hidden || !state) return;
    const source = new EventSource(`/api/runs/${this.id}/events?after=${state.seq}`);
    this.source = source;
    source.onopen = () => {
      this.pause = FIRST_PAUSE_MS;
      this.set({ link: "live" });
      this.watch();
    };
    source.onmessage = (message: MessageEvent<string>) => {
      this.watch();
      this.queue.push(JSON.parse(message.data) as Event);
      this.frame ||= requestAnimationFrame(this.flush);
    };
    source.addEventListener("state", (message: MessageEvent<string>) => {
      this.watch();
      const { seq, status } = JSON.parse(message.data) as { seq: number; status: string };
      const { state } = this.view;
      if (!state) return;
      // A log that ends before the last event seen here is another log: the database was replaced.
      if (seq < state.seq) void this.reload();
      // A killed writer leaves no event; only the server's own look at it tells.
      else if (seq === state.seq && status !== state.run.status) {
        this.set({ state: { ...state, run: { ...state.run, status } } });
      }
    });
    source.onerror = () => this.retry(); // the browser's own retry gives up for good on an error answer
  }

  private readonly flush = (): void => {
    this.frame = 0;
    const { state } = this.view;
    const events = this.queue;
    this.queue = [];
    if (!state || this.closed) return;
    const next = advance(state, events);
    this.set({ state: next });
    if (next.lost) void this.reload();
  };

  private reload(): Promise<void> {
    this.disconnect();
    this.queue = [];
    return this.load();
  }

  private watch(): void {
    clearTimeout(this.watchdog);
    this.watchdog = window.setTimeout(() => this.retry(), SILENCE_MS);
  }

  private retry(): void {
    this.disconnect();
    if (this.closed) return;
    this.set({ link: "waiting" });
    this.timer = window.setTimeout(() => this.resume(), this.pause * (0.75 + Math.random() / 2));
    this.pause = Math.min(this.pause * 2, LONGEST_PAUSE_MS);
  }

  private disconnect(): void {
    clearTimeout(this.timer);
    clearTimeout(this.watchdog);
    this.source?.close();
    this.source = null;
  }
}

let current: LiveRun | null = null;

/** The live view of a run. The tab keeps one: going from a game back to its run opens no new stream. */
export function useRun(id: number): LiveRun {
  if (current?.id !== id) {
    current?.close();
    current = new LiveRun(id);
  }
  const live = current;
  const [, redraw] = useState(0);
  useEffect(() => {
    const update = (): void => redraw((count) => count + 1);
    update(); // what came between drawing and now
    return live.subscribe(update);
  }, [live]);
  return live;
}

/** Close the stream when the page shown needs none. */
export function leaveRun(): void {
  current?.close();
  current = null;
}
