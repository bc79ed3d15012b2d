/** A run as the pages show it: a snapshot, and a pure function that carries it forward by events. */

import type { Event, Game, Sample, Side, Snapshot } from "./api";

export interface RunState extends Snapshot {
  /** True when an event could not be applied and only a fresh snapshot helps. */
  lost: boolean;
}

/** A fresh state that keeps the engine samples already known. */
export function fromSnapshot(snapshot: Snapshot, known: readonly Sample[] = []): RunState {
  return { ...snapshot, samples: joined(known, snapshot.samples), lost: false };
}

/** Two runs of samples as one, in order and without doubles; the later one counts where they overlap. */
export function joined(earlier: readonly Sample[], later: readonly Sample[]): Sample[] {
  const first = later[0]?.at ?? Infinity;
  return [...earlier.filter((sample) => sample.at < first), ...later];
}

/** The state after some events. Those already seen are dropped; only games that changed become new objects. */
export function advance(state: RunState, events: readonly Event[]): RunState {
  const next = { ...state };
  let games: Game[] | null = null;
  const samples: Sample[] = [];

  const change = (number: number, by: (game: Game) => Partial<Game>): void => {
    games ??= [...state.games];
    const index = games.findIndex((game) => game.number === number);
    const game = games[index];
    if (game) games[index] = { ...game, ...by(game) };
    else next.lost = true;
  };

  for (const event of events) {
    if (event.seq <= next.seq) continue;
    next.seq = event.seq;
    switch (event.kind) {
      case "run_started":
      case "run_resumed":
        next.run = { ...next.run, status: "running" };
        break;
      case "run_finished":
        next.run = { ...next.run, status: event.payload.status };
        break;
      case "game_started":
        change(event.payload.number, () => ({ status: "playing" }));
        break;
      case "game_voided": // nobody's fault; it is played again from its start
        change(event.payload.number, (game) => ({
          status: "pending",
          voided: (game.voided ?? 0) + 1,
          plies: 0,
          fen: game.start_fen,
          last_move: null,
        }));
        break;
      case "move": {
        const { number, ply, fen, uci } = event.payload;
        change(number, () => ({ status: "playing", plies: ply + 1, fen, last_move: uci }));
        break;
      }
      case "game_finished": {
        const { number, final_fen, ...end } = event.payload;
        change(number, () => ({ ...end, status: "finished", fen: final_fen }));
        break;
      }
      case "standings":
        next.standings = event.payload.rows;
        break;
      case "engine":
        samples.push(event.payload);
        break;
    }
  }
  if (games) next.games = games;
  if (samples.length) next.samples = [...state.samples, ...samples];
  return next;
}

/** Score of a game for one side, or null while it is not decided, or was not in an imported record. */
export function scoreOf(game: Game, side: Side): number | null {
  if (game.status !== "finished" || game.result === "*") return null;
  return game.winner === null ? 0.5 : game.winner === side ? 1 : 0;
}

interface Progress {
  pending: number;
  playing: number;
  finished: number;
}

export function progress(games: readonly Game[]): Progress {
  const count: Progress = { pending: 0, playing: 0, finished: 0 };
  for (const game of games) count[game.status] += 1;
  return count;
}

/** Points of agent `row` against agent `column`, and the games behind them. */
export function crosstable(games: readonly Game[], agents: number): { score: number; games: number }[][] {
  const table = Array.from({ length: agents }, () =>
    Array.from({ length: agents }, () => ({ score: 0, games: 0 })),
  );
  for (const game of games) {
    const score = scoreOf(game, 0);
    const mine = table[game.first]?.[game.second];
    const theirs = table[game.second]?.[game.first];
    if (score === null || !mine || !theirs) continue;
    mine.score += score;
    mine.games += 1;
    theirs.score += 1 - score;
    theirs.games += 1;
  }
  return table;
}
