/** Positions as the board draws them: pure functions over FEN and the game's record, for every game alike. */

import type { Rules, Side } from "./api";

export interface Piece {
  /** Stays with a piece while it moves, so that the same node moves on the screen. */
  id: number;
  square: string;
  letter: string;
}

export interface Point {
  x: number;
  y: number;
}

/** Board units per file and rank. */
export const CELL = 100;

export function sideOf(letter: string): Side {
  return letter === letter.toUpperCase() ? 0 : 1;
}

/** Square name -> FEN letter. Unreadable input gives an empty board. */
export function placement(fen: string): Map<string, string> {
  const squares = new Map<string, string>();
  const rows = (fen.split(" ")[0] ?? "").split("/");
  rows.forEach((row, index) => {
    let file = 0;
    for (const [token] of row.matchAll(/\d+|[A-Za-z]/g)) {
      if (/\d/.test(token)) {
        file += Number(token);
      } else {
        squares.set(`${String.fromCharCode(97 + file)}${rows.length - index}`, token);
        file += 1;
      }
    }
  });
  return squares;
}

/** The side to move: the first mover is called as in the game's own start position. */
export function turn(fen: string, rules: Rules): Side {
  return fen.split(" ")[1] === rules.start_fen.split(" ")[1] ? 0 : 1;
}

/** The squares of a move in UCI. A pass leaves from and to the same square; a piece that is placed comes from none. */
export function squaresOf(uci: string): { from: string | null; to: string; pass: boolean } | null {
  const match = /^([a-z]\d+)([a-z]\d+)?/.exec(uci);
  if (!match) return null;
  const [, one = "", two] = match;
  return two === undefined ? { from: null, to: one, pass: false } : { from: one, to: two, pass: one === two };
}

/** The colour of a side that is called by a colour, like red; else undefined, and the style sheet has one. */
export function sideColour(rules: Rules, side: Side): string | undefined {
  const name = rules.sides[side];
  return CSS.supports("color", name) ? name : undefined;
}

/** Centre of a square in board units, the first mover's side below unless flipped. */
export function centre(square: string, rules: Rules, flipped: boolean): Point {
  const file = square.charCodeAt(0) - 97;
  const rank = Number(square.slice(1)) - 1;
  return {
    x: ((flipped ? rules.files - 1 - file : file) + 0.5) * CELL,
    y: ((flipped ? rank : rules.ranks - 1 - rank) + 0.5) * CELL,
  };
}

/** The pieces of a position, keeping the identity of those that stayed or moved. Sorted by identity. */
export function reconcile(before: readonly Piece[], after: Map<string, string>): Piece[] {
  const open = new Map(after);
  const gone: Piece[] = [];
  const pieces: Piece[] = [];
  for (const piece of before) {
    if (open.get(piece.square) === piece.letter) {
      open.delete(piece.square);
      pieces.push(piece);
    } else {
      gone.push(piece);
    }
  }
  let next = before.reduce((most, piece) => Math.max(most, piece.id), -1) + 1;
  for (const [square, letter] of open) {
    const index = gone.findIndex((piece) => piece.letter === letter);
    const [moved] = index < 0 ? [] : gone.splice(index, 1);
    pieces.push({ id: moved ? moved.id : next++, square, letter });
  }
  return pieces.sort((a, b) => a.id - b.id);
}

/** Both sides' sums of piece values. */
export function material(fen: string, rules: Rules): [number, number] {
  const sums: [number, number] = [0, 0];
  for (const letter of placement(fen).values()) {
    const info = rules.pieces.find((piece) => piece.letter === letter.toUpperCase());
    sums[sideOf(letter)] += info?.value ?? 0;
  }
  return sums;
}

/** The board in letters, ranks at the left and files below, for those who read rather than look. */
export function textBoard(fen: string, rules: Rules): string {
  const squares = placement(fen);
  const files = Array.from({ length: rules.files }, (_, file) => String.fromCharCode(97 + file));
  const rows = Array.from({ length: rules.ranks }, (_, index) => {
    const rank = rules.ranks - index;
    return `${String(rank).padStart(2)} ${files.map((file) => squares.get(`${file}${rank}`) ?? ".").join(" ")}`;
  });
  return [...rows, `   ${files.join(" ")}`].join("\n");
}
