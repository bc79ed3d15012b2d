/** A small time chart (uPlot) that follows its data and the size of its box. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Series {
  label: string;
  values: (number | null)[];
}

interface Props {
  label: string;
  /** Seconds since the epoch. */
  at: number[];
  series: Series[];
  /** Upper end of the scale; by default what the data needs. */
  max?: number;
  format: (value: number | null) => string;
}

const HEIGHT = 170; // pixels
const COLOURS = ["--accent", "--second"];

/** Time of day; with seconds where the marks are less than a minute apart. */
function clock(_: uPlot, ticks: number[]): string[] {
  const close = (ticks[1] ?? Infinity) - (ticks[0] ?? 0) < 60;
  return ticks.map((tick) =>
    new Date(tick * 1000).toLocaleTimeString("en-GB", {
      hour: "2-digit",
      minute: "2-digit",
      ...(close ? { second: "2-digit" } : {}),
    }),
  );
}

export function Chart({ label, at, series, max, format }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const colour = (name: string): string => getComputedStyle(element).getPropertyValue(name);
    const axis: uPlot.Axis = {
      stroke: () => colour("--muted"),
      grid: { stroke: () => colour("--line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    plot.current = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        scales: { y: { range: (_, __, high) => [0, max ?? Math.max(1, high * 1.1)] } },
        axes: [
          { ...axis, size: 28, space: 80, values: clock },
          { ...axis, size: 46, values: (_, ticks) => ticks.map((tick) => format(tick)) },
        ],
        series: [
          {},
          ...series.map((one, index): uPlot.Series => {
            const name = COLOURS[index % COLOURS.length] ?? "--accent";
            return {
              label: one.label,
              stroke: () => colour(name),
              fill: index === 0 ? () => colour("--accent-soft") : undefined,
              width: 1.5,
              points: { show: false },
            } as uPlot.Series;
          }),
        ],
      },
      [[], ...series.map(() => [])],
      element,
    );
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const repaint = (): void => plot.current?.redraw();
    resize.observe(element);
    dark.addEventListener("change", repaint);
    return () => {
      resize.disconnect();
      dark.removeEventListener("change", repaint);
      plot.current?.destroy();
    };
  }, [series.length, max]);

  useEffect(() => plot.current?.setData([at, ...series.map((one) => one.values)]), [at, series]);

  return <div ref={box} class="chart" role="img" aria-label={label} />;
}
