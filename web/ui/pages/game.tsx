/** One game: board, moves, clocks, probabilities. A follower sees each new move; a reader stays where he reads. */

import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import type { Agent, GameDetail, Move, Rules, Side } from "../api";
import { Board } from "../board";
import { points, score, seconds, title } from "../format";
import { useGame } from "../game";
import { useRun } from "../live";
import { material, textBoard, turn } from "../position";
import { scoreOf, type RunState } from "../state";
import { t } from "../strings";
import { MoveList, TimeStrip, moveNumber } from "./moves";
import { SideMark, StatusChip, outcome, persona } from "./parts";
import { Probabilities } from "./probabilities";
import { Shell, Waiting } from "./shell";

export function GamePage({ id, number }: { id: number; number: number }) {
  const live = useRun(id);
  const { state } = live.view;
  const { detail, refusal } = useGame(live, number);
  const crumbs = [
    { text: t.runs, href: "/" },
    ...(state ? [{ text: state.run.name, href: `/runs/${id}` }] : []),
    { text: t.gameNumber(number) },
  ];
  const names = state && detail ? pair(detail, state).map((agent) => agent?.name ?? "") : [];
  return (
    <Shell title={names.length ? names.join(` ${t.vs} `) : t.gameNumber(number)} crumbs={crumbs} view={live.view}>
      {state && detail ? (
        <GameView state={state} detail={detail} />
      ) : (
        <Waiting view={{ ...live.view, refusal: refusal ?? live.view.refusal }} />
      )}
    </Shell>
  );
}

function pair(detail: GameDetail, state: RunState): [Agent | undefined, Agent | undefined] {
  return [state.agents[detail.game.first], state.agents[detail.game.second]];
}

function GameView({ state, detail }: { state: RunState; detail: GameDetail }) {
  const { moves } = detail;
  const { rules, run } = state;
  const { number } = detail.game;
  const game = state.games.find((one) => one.number === number) ?? detail.game;
  const agents = pair(detail, state);
  const [chosen, setChosen] = useState<number | null>(null); // ply being read; null follows the game
  const [flipped, setFlipped] = useState(false);
  const last = moves.length - 1;
  const ply = chosen === null ? last : Math.min(chosen, last);
  const move = moves[ply];
  const fen = move?.fen ?? game.start_fen;

  // Going to the last move of a game is following it.
  const go = useCallback((to: number) => setChosen(to >= last ? null : Math.max(-1, to)), [last]);
  // From where the reader is by then: keys can come faster than drawing.
  const step = useCallback(
    (by: number) =>
      setChosen((at) => {
        const to = Math.min(at ?? last, last) + by;
        return to >= last ? null : Math.max(-1, to);
      }),
    [last],
  );
  const flip = useCallback(() => setFlipped((value) => !value), []);
  useKeys(step, go, flip, last);

  const toMove = t.toMove(title(rules.sides[turn(game.fen, rules)]));
  const mover = move && agents[move.side];
  const sides: [Side, Side] = flipped ? [0, 1] : [1, 0];
  const strip = (side: Side) => (
    <Player
      side={side}
      agent={agents[side]}
      rules={rules}
      moves={moves}
      ply={ply}
      fen={fen}
      points={(move ? move.points : detail.game.start_points)?.[side] ?? null}
      toMove={game.status === "playing" && ply === last && turn(fen, rules) === side}
      score={chosen === null ? scoreOf(game, side) : null}
    />
  );
  return (
    <>
      <div class="head">
        <h1>
          {agents[0]?.name} <span class="muted">{t.vs}</span> {agents[1]?.name}
        </h1>
        <StatusChip status={game.status} />
        <p class="muted">{outcome(game, state.agents) || `${t.round(game.round)} · ${toMove}`}</p>
        <nav class="neighbours">
          <Neighbour run={run.id} state={state} number={number - 1} label={t.previousGame} sign="‹" />
          <Neighbour run={run.id} state={state} number={number + 1} label={t.nextGame} sign="›" />
        </nav>
      </div>
      <div class="game" style={{ "--aspect": rules.files / rules.ranks }}>
        <section class="table">
          {strip(sides[0])}
          <Board
            rules={rules}
            fen={fen}
            lastMove={move?.uci ?? null}
            flipped={flipped}
            coordinates
            label={t.boardLabel(agents[0]?.name ?? "", agents[1]?.name ?? "", ply + 1, move?.notation ?? null)}
          />
          {strip(sides[1])}
          <Controls ply={ply} last={last} following={chosen === null} go={go} step={step} flip={flip} />
          <TimeStrip moves={moves} ply={ply} go={go} />
          <details class="text-board">
            <summary>{t.textBoard}</summary>
            <pre>{textBoard(fen, rules)}</pre>
          </details>
          <p class="unseen" aria-live="polite">
            {move && mover && t.announce(mover.name, move.notation)}
          </p>
        </section>
        <MoveList moves={moves} ply={ply} following={chosen === null} go={go} />
        <Probabilities
          move={move}
          number={moveNumber(moves, ply)}
          agent={mover}
          opening={move !== undefined && detail.game.spec.opening?.[ply] === move.uci}
        />
      </div>
    </>
  );
}

type Go = (ply: number) => void;

/** Arrow keys, Home and End walk through the game; F turns the board. */
function useKeys(step: Go, go: Go, flip: () => void, last: number): void {
  useEffect(() => {
    const press = (event: KeyboardEvent): void => {
      if (event.metaKey || event.ctrlKey || event.altKey || event.target instanceof HTMLInputElement) return;
      if (event.key === "ArrowLeft") step(-1);
      else if (event.key === "ArrowRight") step(1);
      else if (event.key === "Home") go(-1);
      else if (event.key === "End") go(last);
      else if (event.key === "f") flip();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [step, go, flip, last]);
}

interface PlayerProps {
  side: Side;
  agent: Agent | undefined;
  rules: Rules;
  moves: readonly Move[];
  ply: number;
  fen: string;
  points: number | null;
  toMove: boolean;
  score: number | null;
}

function Player(props: PlayerProps) {
  const { side, agent, rules, moves, ply, fen, toMove } = props;
  const spent = useMemo(() => {
    const times = moves.slice(0, ply + 1).flatMap((move) => (move.side === side ? (move.elapsed_s ?? []) : []));
    return times.length ? times.reduce((sum, time) => sum + time, 0) : null;
  }, [moves, ply, side]);
  const timed = moves.some((move) => move.elapsed_s !== null); // a record may tell no times
  const sums = material(fen, rules);
  const ahead = sums[side] - sums[side === 0 ? 1 : 0];
  return (
    <div class={`player wide${toMove ? " to-move" : ""}`}>
      <SideMark rules={rules} side={side} />
      <span class="name" title={String(agent?.config["style"] ?? "") || undefined}>
        {agent?.name}
      </span>
      <span class="muted persona">
        {title(rules.sides[side])}
        {agent && ` · ${persona(agent)}`}
      </span>
      {props.points !== null ? (
        <span class="count">{t.points(points(props.points))}</span>
      ) : (
        ahead > 0 && <span class="count">{t.materialAhead(points(ahead))}</span>
      )}
      {timed && (
        <span class="clock" title={spent === null ? undefined : t.total(seconds(spent))}>
          {seconds(spent)}
        </span>
      )}
      {props.score !== null && <b class="result">{score(props.score)}</b>}
    </div>
  );
}

interface ControlsProps {
  ply: number;
  last: number;
  following: boolean;
  go: Go;
  step: Go;
  flip: () => void;
}

function Controls({ ply, last, following, go, step, flip }: ControlsProps) {
  return (
    <div class="controls">
      <button type="button" aria-label={t.first} title={t.first} disabled={ply < 0} onClick={() => go(-1)}>
        <Icon d="M3 3v10M13 3v10L6 8z" />
      </button>
      <button type="button" aria-label={t.previous} title={t.previous} disabled={ply < 0} onClick={() => step(-1)}>
        <Icon d="M11 3v10L4 8z" />
      </button>
      <button type="button" aria-label={t.next} title={t.next} disabled={ply >= last} onClick={() => step(1)}>
        <Icon d="M5 3v10l7-5z" />
      </button>
      <button type="button" aria-label={t.latest} title={t.latest} disabled={ply >= last} onClick={() => go(last)}>
        <Icon d="M13 3v10M3 3v10l7-5z" />
      </button>
      <button type="button" aria-label={t.flip} title={t.flip} onClick={flip}>
        <Icon d="M5 13V3L2 6M11 3v10l3-3" open />
      </button>
      {following ? (
        <span class="muted following">{t.following}</span>
      ) : (
        <button type="button" class="follow" onClick={() => go(last)}>
          {t.follow}
        </button>
      )}
    </div>
  );
}

function Icon({ d, open = false }: { d: string; open?: boolean }) {
  return (
    <svg class={open ? "icon open" : "icon"} viewBox="0 0 16 16" aria-hidden="true">
      <path d={d} />
    </svg>
  );
}

interface NeighbourProps {
  run: number;
  state: RunState;
  number: number;
  label: string;
  sign: string;
}

function Neighbour({ run, state, number, label, sign }: NeighbourProps) {
  if (!state.games.some((game) => game.number === number)) return null;
  return (
    <a href={`/runs/${run}/games/${number}`} aria-label={label} title={label}>
      {sign}
    </a>
  );
}
