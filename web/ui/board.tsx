/** The board: one SVG for every game, drawn from the game's record. It shows a position and the move that led to it. */

import { memo } from "preact/compat";
import { useMemo, useRef } from "preact/hooks";
import type { PieceInfo, Rules, Side } from "./api";
import {
  CELL,
  centre,
  placement,
  reconcile,
  sideColour,
  sideOf,
  squaresOf,
  type Piece,
  type Point,
} from "./position";
import { SHAPES, octagon, stoneRadius } from "./shapes";
import { t } from "./strings";

interface Props {
  rules: Rules;
  fen: string;
  lastMove: string | null;
  label: string;
  flipped?: boolean;
  coordinates?: boolean;
}

const CORNERS = "M-47-27v-20h20M27-47h20v20M47 27v20h-20M-27 47h-20v-20";
const EDGE = 36; // room for the coordinates, board units

/** Redrawn only when the position or the way of showing it changes. */
export const Board = memo(function Board(props: Props) {
  const { rules, fen, lastMove, label, flipped = false, coordinates = false } = props;
  const shown = useRef<Piece[]>([]);
  const pieces = useMemo(() => (shown.current = reconcile(shown.current, placement(fen))), [fen]);
  const edge = coordinates ? EDGE : 0;
  const width = rules.files * CELL;
  const height = rules.ranks * CELL;
  return (
    <svg
      class={`board ${rules.board}`}
      viewBox={`${-edge} 0 ${width + edge} ${height + edge}`}
      role="img"
      aria-label={label}
    >
      <Ground rules={rules} />
      <LastMove rules={rules} uci={lastMove} flipped={flipped} />
      {pieces.map((piece) => (
        <Figure key={piece.id} rules={rules} letter={piece.letter} {...centre(piece.square, rules, flipped)} />
      ))}
      {coordinates && <Coordinates rules={rules} flipped={flipped} />}
    </svg>
  );
});

/** The empty board: the same for both viewpoints, because every board drawn here is symmetric under rotation. */
const Ground = memo(function Ground({ rules }: { rules: Rules }) {
  const { files, ranks } = rules;
  let d = "";
  if (rules.board === "squares") {
    for (let rank = 0; rank < ranks; rank++) {
      for (let file = (rank + 1) % 2; file < files; file += 2) {
        d += `M${file * CELL} ${rank * CELL}h${CELL}v${CELL}h${-CELL}z`;
      }
    }
    return (
      <>
        <rect class="ground" width={files * CELL} height={ranks * CELL} />
        <path class="dark" d={d} />
      </>
    );
  }
  const half = CELL / 2;
  for (let rank = 0; rank < ranks; rank++) d += `M${half} ${rank * CELL + half}h${(files - 1) * CELL}`;
  for (let file = 0; file < files; file++) d += `M${file * CELL + half} ${half}v${(ranks - 1) * CELL}`;
  for (const [from, to] of rules.lines) {
    const a = centre(from, rules, false);
    const b = centre(to, rules, false);
    d += `M${a.x} ${a.y}L${b.x} ${b.y}`;
  }
  return (
    <>
      <rect class="ground" width={files * CELL} height={ranks * CELL} rx="14" />
      <path class="lines" d={d} />
    </>
  );
});

/** The last move by shape, not only by colour: a ring where it came from, corners where it went, dashes for a pass. */
function LastMove({ rules, uci, flipped }: { rules: Rules; uci: string | null; flipped: boolean }) {
  const move = uci ? squaresOf(uci) : null;
  if (!move) return null;
  const to = centre(move.to, rules, flipped);
  if (move.pass) {
    return (
      <g class="last" transform={`translate(${to.x} ${to.y})`}>
        <circle class="pass" r="54" />
        <text class="pass-label" y={to.y > 2 * CELL ? -64 : 84}>
          {t.pass}
        </text>
      </g>
    );
  }
  const from = move.from ? centre(move.from, rules, flipped) : null;
  return (
    <g class="last">
      {from && <rect x={from.x - 50} y={from.y - 50} width="100" height="100" />}
      <rect x={to.x - 50} y={to.y - 50} width="100" height="100" />
      {from && <circle class="from" cx={from.x} cy={from.y} r="14" />}
      <path class="to" transform={`translate(${to.x} ${to.y})`} d={CORNERS} />
    </g>
  );
}

const Figure = memo(function Figure({ rules, letter, x, y }: Point & { rules: Rules; letter: string }) {
  const side = sideOf(letter);
  const info = rules.pieces.find((piece) => piece.letter === letter.toUpperCase());
  const colour = sideColour(rules, side);
  return (
    <g
      class={`piece side${side}${colour ? " coloured" : ""}`}
      style={{ transform: `translate(${x}px,${y}px)`, "--side": colour }}
    >
      {info ? <Drawing info={info} side={side} /> : <text>{letter}</text>}
    </g>
  );
});

function Drawing({ info, side }: { info: PieceInfo; side: Side }) {
  const shape = SHAPES[info.name];
  if (shape) {
    return (
      <>
        <path class="body" d={shape.body} />
        {shape.detail && <path class="detail" d={shape.detail} />}
      </>
    );
  }
  const radius = stoneRadius(info.name);
  return (
    <>
      <path class="stone" d={octagon(radius)} />
      <path class="rim" d={octagon(radius - 6)} />
      <text class="glyph" font-size={radius * 1.2} dy="0.02em">
        {info.glyphs[side]}
      </text>
    </>
  );
}

function Coordinates({ rules, flipped }: { rules: Rules; flipped: boolean }) {
  const files = Array.from({ length: rules.files }, (_, file) => String.fromCharCode(97 + file));
  const ranks = Array.from({ length: rules.ranks }, (_, rank) => rank + 1);
  return (
    <g class="coordinates" aria-hidden="true">
      {files.map((file) => (
        <text key={file} x={centre(`${file}1`, rules, flipped).x} y={rules.ranks * CELL + EDGE - 8}>
          {file}
        </text>
      ))}
      {ranks.map((rank) => (
        <text key={rank} x={-EDGE / 2} y={centre(`a${rank}`, rules, flipped).y + 9}>
          {rank}
        </text>
      ))}
    </g>
  );
}
