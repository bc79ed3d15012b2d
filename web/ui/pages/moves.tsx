/** The moves of a game as a list with times, and as a strip of bars. */

import { memo } from "preact/compat";
import { useEffect, useRef } from "preact/hooks";
import type { Move } from "../api";
import { seconds } from "../format";
import { squaresOf } from "../position";
import { t } from "../strings";

interface Props {
  moves: readonly Move[];
  ply: number;
  go: (ply: number) => void;
}

/** Both sides' moves share a number; the second side may have made the first move. */
export function moveNumber(moves: readonly Move[], ply: number): number {
  return ((ply + (moves[0]?.side ?? 0)) >> 1) + 1;
}

export function MoveList({ moves, ply, following, go }: Props & { following: boolean }) {
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const box = list.current;
    const current = box?.querySelector<HTMLElement>("[aria-current]");
    if (!box || !current) return;
    // Only the list scrolls, never the page.
    if (following) box.scrollTop = box.scrollHeight;
    else if (current.offsetTop < box.scrollTop || current.offsetTop + 40 > box.scrollTop + box.clientHeight) {
      box.scrollTop = current.offsetTop - box.clientHeight / 2;
    }
  }, [ply, following]);

  const rows: { number: number; cells: (Move | undefined)[] }[] = [];
  for (const move of moves) {
    const number = moveNumber(moves, move.ply);
    const row = (rows[number - 1] ??= { number, cells: [undefined, undefined] });
    row.cells[move.side] = move;
  }
  return (
    <section class="card panel moves">
      <h2>{t.moves}</h2>
      <ol ref={list}>
        <li class="start">
          <Cell ply={-1} text={t.start} time="" current={ply === -1} go={go} />
        </li>
        {rows.map((row) => (
          <li key={row.number}>
            <span class="muted num">{row.number}</span>
            {row.cells.map((move, side) =>
              move ? (
                <Cell
                  key={side}
                  ply={move.ply}
                  text={squaresOf(move.uci)?.pass ? t.pass : move.notation}
                  time={move.elapsed_s === null ? "" : seconds(move.elapsed_s)}
                  current={move.ply === ply}
                  go={go}
                />
              ) : (
                <span key={side} />
              ),
            )}
          </li>
        ))}
      </ol>
    </section>
  );
}

interface CellProps {
  ply: number;
  text: string;
  time: string;
  current: boolean;
  go: (ply: number) => void;
}

const Cell = memo(function Cell({ ply, text, time, current, go }: CellProps) {
  return (
    <button type="button" data-ply={ply} aria-current={current ? "step" : undefined} onClick={() => go(ply)}>
      <span>{text}</span>
      <small>{time}</small>
    </button>
  );
});

const BAR = 4; // strip units per move
const TALL = 40;

/** How long each move took. The scale is a square root, so that one slow move does not flatten the others. */
export function TimeStrip({ moves, ply, go }: Props) {
  const times = moves.flatMap((move) => move.elapsed_s ?? []);
  if (times.length === 0) return null;
  const longest = Math.max(0.001, ...times);
  const width = Math.max(40, moves.length) * BAR;
  const press = (event: MouseEvent): void => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    go(Math.min(moves.length - 1, Math.floor(((event.clientX - box.left) / box.width) * (width / BAR))));
  };
  return (
    <figure class="times" title={t.timePerMoveHint}>
      <figcaption class="muted">
        {t.timePerMove} <span>{seconds(longest)}</span>
      </figcaption>
      <svg viewBox={`0 0 ${width} ${TALL}`} preserveAspectRatio="none" aria-hidden="true" onClick={press}>
        {moves.map((move) => {
          if (move.elapsed_s === null) return null;
          const height = Math.max(1, Math.sqrt(move.elapsed_s / longest) * TALL);
          return (
            <rect
              key={move.ply}
              class={`side${move.side}${move.ply === ply ? " current" : ""}`}
              x={move.ply * BAR}
              width={BAR - 1}
              y={TALL - height}
              height={height}
            />
          );
        })}
      </svg>
    </figure>
  );
}
