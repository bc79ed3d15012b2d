/** Small pieces that several pages share. */

import type { Agent, Game, Side } from "../api";
import { points } from "../format";
import { t } from "../strings";

export function StatusChip({ status }: { status: string }) {
  return <span class={`chip ${status}`}>{t.status(status)}</span>;
}

/** What ended a game, in a few words; empty while it goes on. */
export function cause({ termination, reason }: Game): string {
  return t.reason((termination === "normal" ? reason : termination) ?? "");
}

/** How a game ended, in words; empty while it has not. */
export function outcome(game: Game, agents: readonly Agent[]): string {
  if (game.status !== "finished") return "";
  const winner = game.winner === null ? null : agents[game.winner === 0 ? game.first : game.second];
  const head = winner ? t.wins(winner.name) : game.result === "*" ? t.noResult : t.draw;
  const counted = game.by_points && game.points ? t.byPoints(points(game.points[0]), points(game.points[1])) : "";
  const byRule = game.termination === "normal" || game.termination === "ply_limit";
  return [head, cause(game), byRule ? "" : game.reason, counted].filter(Boolean).join(" · ");
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

export function SideMark({ side }: { side: Side }) {
  return <i class={`mark side${side}`} aria-hidden="true" />;
}
