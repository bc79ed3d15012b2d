/** The moves of one game with all that is recorded of them, kept up with the run's event stream. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, get, type GameDetail } from "./api";
import type { LiveRun } from "./live";

const RETRY_MS = 1000;

interface Loaded {
  detail: GameDetail | null;
  refusal: string | null;
}

/** Carry a game on by a later answer; moves that came again replace those known. */
function merge(before: GameDetail | null, answer: GameDetail): GameDetail {
  const first = answer.moves[0]?.ply ?? Infinity;
  const kept = (before?.moves ?? []).filter((move) => move.ply < first);
  return { game: answer.game, moves: [...kept, ...answer.moves] };
}

/** The event stream tells that there is a new move; what the engine thought of it is fetched here. */
export function useGame(live: LiveRun, number: number): Loaded {
  const [loaded, setLoaded] = useState<Loaded>({ detail: null, refusal: null });
  const { state } = live.view;
  const game = state?.games.find((one) => one.number === number);
  const wanted = useRef("");
  // A game that was voided is another one from its start.
  wanted.current = state ? `${game?.voided ?? 0} ${game?.status} ${game?.plies}` : "";
  const wake = useRef<() => void>(() => undefined);

  useEffect(() => wake.current(), [wanted.current]);
  useEffect(() => {
    let left = false;
    let known: GameDetail | null = null;
    let seen = "";
    const changed = (): Promise<void> => new Promise((resolve) => (wake.current = resolve));
    // One request at a time: moves that come faster than answers are fetched together.
    const follow = async (): Promise<void> => {
      while (!left) {
        const asked = wanted.current;
        if (asked === seen) {
          await changed();
          continue;
        }
        if (asked.split(" ")[0] !== seen.split(" ")[0]) known = null;
        try {
          const after = (known?.moves.length ?? 0) - 1;
          const answer = await get<GameDetail>(`/api/runs/${live.id}/games/${number}?after=${after}`);
          if (left) return;
          if (known && answer.game.plies < known.moves.length) {
            known = null; // not the game that was known
            continue;
          }
          known = merge(known, answer);
          seen = asked;
          setLoaded({ detail: known, refusal: null });
        } catch (error) {
          if (left) return;
          if (error instanceof Refused && !error.temporary) setLoaded({ detail: null, refusal: error.message });
          await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        }
      }
    };
    void follow();
    return () => {
      left = true;
      wake.current();
    };
  }, [live, number]);
  return loaded;
}
