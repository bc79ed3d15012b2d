/** All games of a tournament at once: those being played first, each board redrawn only when its game changes. */

import { memo } from "preact/compat";
import type { Agent, Game, Rules, Side, Status } from "../api";
import { Board } from "../board";
import { turn } from "../position";
import { scoreOf, type RunState } from "../state";
import { score } from "../format";
import { t } from "../strings";
import { SideMark, cause, outcome } from "./parts";
import { MiniStandings } from "./standings";

const ORDER: readonly Status[] = ["playing", "finished", "pending"];

export function BoardsTab({ state }: { state: RunState }) {
  const { games, agents, rules, run } = state;
  return (
    <div class="with-side">
      <div>
        {ORDER.map((status) => {
          const part = games.filter((game) => game.status === status);
          if (part.length === 0) return null;
          return (
            <section key={status} class="section">
              <h2>
                {t.sections[status]} <span class="muted">{part.length}</span>
              </h2>
              <div class="boards">
                {part.map((game) => (
                  <Card key={game.number} run={run.id} game={game} rules={rules} agents={agents} />
                ))}
              </div>
            </section>
          );
        })}
      </div>
      <aside>
        <MiniStandings state={state} />
      </aside>
    </div>
  );
}

interface CardProps {
  run: number;
  game: Game;
  rules: Rules;
  agents: readonly Agent[];
}

const Card = memo(function Card({ run, game, rules, agents }: CardProps) {
  const first = agents[game.first]?.name ?? "";
  const second = agents[game.second]?.name ?? "";
  const label = t.boardLabel(first, second, game.plies, game.last_move);
  const end = outcome(game, agents);
  return (
    <a class={`card board-card ${game.status}`} href={`/runs/${run}/games/${game.number}`} data-game={game.number}>
      <Player rules={rules} game={game} side={1} name={second} />
      <Board rules={rules} fen={game.fen} lastMove={game.last_move} label={label} />
      <Player rules={rules} game={game} side={0} name={first} />
      <p class="muted foot" title={end || undefined}>
        <span>{t.gameNumber(game.number)}</span>
        <span>{cause(game) || (game.plies > 0 && t.moveCount(game.plies))}</span>
      </p>
    </a>
  );
});

function Player({ rules, game, side, name }: { rules: Rules; game: Game; side: Side; name: string }) {
  const points = scoreOf(game, side);
  const toMove = game.status === "playing" && turn(game.fen, rules) === side;
  const won = game.status === "finished" && game.winner === side;
  return (
    <div class={`player${toMove ? " to-move" : ""}${won ? " won" : ""}`}>
      <SideMark rules={rules} side={side} />
      <span class="name">{name}</span>
      {points !== null && <b>{score(points)}</b>}
      {toMove && <span class="turn" aria-hidden="true" />}
    </div>
  );
}
