/** Small pieces that several pages share. */

import type { Agent, Game, Rules, Run, Side } from "../api";
import { points } from "../format";
import { sideColour } from "../position";
import { t } from "../strings";

export function StatusChip({ status }: { status: string }) {
  return <span class={`chip ${status}`}>{t.status(status)}</span>;
}

/** What a run is, in a line: its game, who plays, and how far it is. */
export function about({ imported, agents, games }: Run, game: string, finished: number, when?: string): string {
  const parts = imported
    ? [game, t.players(agents), t.recorded(games)]
    : [game, t.agents(agents), !when && t.progress(finished, games)];
  return [...parts, when].filter(Boolean).join(" · ");
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
  const told = ["normal", "ply_limit", "resignation"].includes(game.termination ?? "");
  const why = game.termination === "no_move" ? "" : cause(game); // its reason says it, and more
  return [head, why, told ? "" : game.reason, counted].filter(Boolean).join(" · ");
}

/** What makes an agent this agent, in a few words. */
export function persona({ config }: Agent): string {
  const { type, strength, temperature, depth, mode } = config;
  const parts = [
    strength === undefined ? type : String(strength),
    typeof temperature === "number" && t.temperature(temperature.toFixed(1)),
    depth !== undefined && t.depth(depth),
    t.modes[String(mode)],
  ];
  return parts.filter(Boolean).join(" · ");
}

export function SideMark({ rules, side }: { rules: Rules; side: Side }) {
  return <i class={`mark side${side}`} style={{ background: sideColour(rules, side) }} aria-hidden="true" />;
}
