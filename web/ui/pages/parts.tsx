/** Small pieces that several pages share. */

import type { Agent, Game } from "../api";
import { points } from "../format";
import { t } from "../strings";

export function StatusChip({ status }: { status: string }) {
  return <span class={`chip ${status}`}>{t.status(status)}</span>;
}

/** How a game ended, in words; empty while it has not. */
export function outcome(game: Game, agents: readonly Agent[]): string {
  if (game.status !== "finished") return "";
  const winner = game.winner === null ? null : agents[game.winner === 0 ? game.first : game.second];
  const head = winner ? t.wins(winner.name) : t.draw;
  const why = t.reason(game.termination === "normal" ? (game.reason ?? "") : (game.termination ?? ""));
  const counted = game.by_points && game.points ? t.byPoints(points(game.points[0]), points(game.points[1])) : "";
  return [head, why, counted].filter(Boolean).join(" · ");
}

/** What makes an agent this agent, in a few words. */
export function persona({ config }: Agent): string {
  const { type, strength, temperature, depth } = config;
  const parts = [
    strength === undefined ? type : String(strength),
    typeof temperature === "number" && t.temperature(temperature.toFixed(1)),
    depth !== undefined && t.depth(depth),
  ];
  return parts.filter(Boolean).join(" · ");
}

export function SideMark({ side }: { side: 0 | 1 }) {
  return <i class={`mark side${side}`} aria-hidden="true" />;
}
