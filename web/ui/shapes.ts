/**
 * Drawings of pieces by name, in a box of 100 units around the origin. A piece without a drawing shows its glyph on an
 * octagonal stone, whose size follows its rank.
 */

interface Shape {
  body: string;
  /** Lines on top of the body, drawn in the contrasting colour. */
  detail?: string;
}

export const SHAPES: Record<string, Shape> = {
  pawn: {
    body:
      "M0-29c6.9 0 12.5 5.4 12.5 12 0 3.9-1.9 7.3-4.8 9.5H13v5.5H7c1.3 10.6 5.4 15.6 13 22.5H-20" +
      "C-12.400 13.600-8.300 8.600-7-2H-13v-5.500h5.300c-2.900-2.200-4.800-5.600-4.800-9.500 0-6.600 5.600-12 12.500-12z" +
      "M-23 25h46v9h-46z",
  },
  rook: {
    body:
      "M-24-30h11v7h7v-7h12v7h7v-7h11v16l-7 6v17l7 7h-48l7-7V-8l-7-6zM-27 24h54v10h-54z",
    detail: "M-16-8h32M-16 9h32",
  },
  knight: {
    body:
      "M-3-34l7 7c14 3 22 16 22 34 0 6-1 11-2 17h-40c0-12 14-17 15-29-5 5-9 5-13 7-3 2-5 6-9 5-4-1-6-6-4-11" +
      " 3-8 7-11 10-18 2-5 6-9 10-6zM-23 25h50v9h-50z",
    detail: "M-8-16a2 2 0 1 1 .1 0M14-12c5 6 7 15 6 25",
  },
  bishop: {
    body:
      "M0-40a5 5 0 0 1 3.500 8.600C12-26 18-17 18-8c0 6-3 10-7 14v7h-22V6c-4-4-7-8-7-14 0-9 6-18 14.500-23.400" +
      "A5 5 0 0 1 0-40zM-10 14h20c2 4 10 5 13 10h-46c3-5 11-6 13-10zM-26 25h52v9h-52z",
    detail: "M0-20V-4M-7-13H7M-11 8h22",
  },
  queen: {
    body:
      "M-21 13l-9-33 14 16-2-27L-4-9 0-34 4-9l14-22-2 27 14-16-9 33zM-20 14h40l-3 10h-34zM-26 25h52v9h-52z" +
      "M-30-24a4 4 0 1 0 .1 0zM-18-35a4 4 0 1 0 .1 0zM0-38a4 4 0 1 0 .1 0zM18-35a4 4 0 1 0 .1 0zM30-24a4 4 0 1 0 .1 0z",
  },
  king: {
    body:
      "M-3-42h6v6h6v6h-6v9c9-7 27-7 27 9 0 9-7 15-10 25h-40c-3-10-10-16-10-25 0-16 18-16 27-9v-9h-6v-6h6z" +
      "M-20 14h40l-3 10h-34zM-26 25h52v9h-52z",
    detail: "M0-14V12",
  },
};

/** Radius of the stone of a piece that has no drawing: generals large, guards and soldiers small. */
export function stoneRadius(name: string): number {
  if (name === "general") return 48;
  return name === "guard" || name === "soldier" ? 35 : 42;
}

/** A regular octagon, flat on top. */
export function octagon(radius: number): string {
  const near = +(radius * 0.4142).toFixed(1);
  return (
    `M${-near} ${-radius}H${near}L${radius} ${-near}V${near}L${near} ${radius}` +
    `H${-near}L${-radius} ${near}V${-near}z`
  );
}
