/** The shapes of the JSON that the server sends, and how to fetch it. */

export type Side = 0 | 1;
export type Status = "pending" | "playing" | "finished";

export interface PieceInfo {
  letter: string;
  name: string;
  value: number;
  glyphs: [string, string];
}

/** The declarative record of a game: all that the pages know of chess or janggi. */
export interface Rules {
  name: string;
  title: string;
  sides: [string, string];
  files: number;
  ranks: number;
  board: "squares" | "points";
  lines: [string, string][];
  start_fen: string;
  pieces: PieceInfo[];
}

/** Times are seconds since the epoch. */
export interface Run {
  id: number;
  name: string;
  game: string;
  status: string;
  created_at: number;
  started_at: number | null;
  finished_at: number | null;
  agents: number;
  games: number;
  games_finished: number;
  /** Of game records, which nobody played here. */
  imported: boolean;
}

/** As the list of runs has it: with the title of the game. */
export type ListedRun = Run & { title: string };

export interface Agent {
  index: number;
  name: string;
  config: { type: string; [setting: string]: unknown };
}

export interface Game {
  number: number;
  round: number;
  first: number;
  second: number;
  status: Status;
  winner: Side | null;
  result: string | null;
  termination: string | null;
  reason: string | null;
  by_points: boolean | null;
  points: [number, number] | null;
  plies: number;
  start_fen: string;
  fen: string;
  last_move: string | null;
  /** Not from the server: how often it has been voided since the snapshot. */
  voided?: number;
}

export interface Standing {
  agent: number;
  name: string;
  played: number;
  wins: number;
  draws: number;
  losses: number;
  score: number;
  rating: number | null;
  low: number | null;
  high: number | null;
  rating_note: string | null;
}

export interface Snapshot {
  run: Run;
  agents: Agent[];
  games: Game[];
  standings: Standing[];
  seq: number;
  rules: Rules;
  /** Of the last seconds only. */
  samples: readonly Sample[];
}

export interface Move {
  ply: number;
  side: Side;
  uci: string;
  notation: string;
  fen: string;
  elapsed_s: number | null;
  logprob: number | null;
  legal_mass: number | null;
  entropy: number | null;
  distribution: Record<string, number> | null;
  queue_s: number | null;
  prefill_s: number | null;
  decode_s: number | null;
  prompt_tokens: number | null;
  cached_tokens: number | null;
  scored_rows: number | null;
  prompt_restarted: boolean;
  thoughts: string | null;
  points: [number, number] | null;
}

export interface GameDetail {
  game: Game & { start_points: [number, number] | null; spec: { opening?: string[] } };
  moves: Move[];
}

interface EngineStats {
  num_running: number;
  num_waiting: number;
  kv_usage: number | null;
  prefix_hit_rate: number | null;
  requests_finished: number;
  tokens_per_s: number | null;
  [figure: string]: unknown;
}

export interface Sample {
  at: number;
  stats: EngineStats;
}

export type Event =
  | { seq: number; kind: "run_started" | "run_resumed"; payload: unknown }
  | { seq: number; kind: "run_finished"; payload: { status: string } }
  | { seq: number; kind: "game_started"; payload: { number: number } }
  | { seq: number; kind: "move"; payload: MoveEvent }
  | { seq: number; kind: "game_voided"; payload: { number: number } }
  | { seq: number; kind: "game_finished"; payload: FinishedEvent }
  | { seq: number; kind: "standings"; payload: { rows: Standing[] } }
  | { seq: number; kind: "engine"; payload: Sample };

interface MoveEvent {
  number: number;
  ply: number;
  side: Side;
  uci: string;
  notation: string;
  fen: string;
}

interface FinishedEvent {
  number: number;
  winner: Side | null;
  result: string;
  termination: string;
  reason: string;
  by_points: boolean;
  points: [number, number] | null;
  plies: number;
  final_fen: string;
}

/** The server answered, and the answer is a refusal; the message is its sentence. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }

  /** Asking again later may help. */
  get temporary(): boolean {
    return this.status >= 500 || this.status === 429;
  }
}

/** Fetch JSON; throws `Refused` for an error answer and `TypeError` when nobody answers. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await fetch(path, { headers: { accept: "application/json" }, signal: signal ?? null });
  if (response.ok) return (await response.json()) as T;
  const body = (await response.json().catch(() => null)) as { error?: string } | null;
  throw new Refused(response.status, body?.error ?? response.statusText);
}
