/** The moves of one game with all that is recorded of them, kept up with the run's event stream. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, get, type GameDetail } from "./api";
import type { LiveRun } from "./live";

const RETRY_MS = 1000;

interface Loaded {
  detail: GameDetail | null;
  refusal: string | null;
}

/** Carry a game on by a later answer; moves that came twice replace those known. */
export function merge(before: GameDetail | null, answer: GameDetail): GameDetail {
  const first = answer.moves[0]?.ply ?? Infinity;
  const kept = (before?.moves ?? []).filter((move) => move.ply < first && move.ply < answer.game.plies);
  return { game: answer.game, moves: [...kept, ...answer.moves] };
}

/** The event stream tells that there is a new move; what the engine thought of it is fetched here. */
export function useGame(live: LiveRun, number: number): Loaded {
  const [loaded, setLoaded] = useState<Loaded>({ detail: null, refusal: null });
  const [attempt, setAttempt] = useState(0);
  const known = useRef<GameDetail | null>(null);
  const game = live.view.state?.games.find((one) => one.number === number);
  const version = live.view.state ? `${game?.status} ${game?.plies}` : undefined;

  useEffect(() => {
    if (version === undefined) return;
    const stop = new AbortController();
    let timer = 0;
    const shown = known.current;
    // Fewer moves than known: the game was started again, so nothing known of it holds.
    const restarted = shown !== null && game !== undefined && game.plies < shown.moves.length;
    const after = restarted ? -1 : (shown?.moves.length ?? 0) - 1;
    get<GameDetail>(`/api/runs/${live.id}/games/${number}?after=${after}`, stop.signal).then(
      (answer) => {
        known.current = merge(restarted ? null : shown, answer);
        setLoaded({ detail: known.current, refusal: null });
      },
      (error: unknown) => {
        if (stop.signal.aborted) return;
        if (error instanceof Refused && !error.temporary) setLoaded({ detail: null, refusal: error.message });
        else timer = window.setTimeout(() => setAttempt((count) => count + 1), RETRY_MS);
      },
    );
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [live, number, version, attempt]);
  return loaded;
}
