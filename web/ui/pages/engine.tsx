/** The inference engine's figures: five numbers above every view of a run, and their course over time. */

import { useEffect, useMemo } from "preact/hooks";
import { get, type Sample } from "../api";
import { Chart, type Series } from "../chart";
import { compact, number, percent } from "../format";
import type { LiveRun } from "../live";
import type { RunState } from "../state";
import { t } from "../strings";

const GAP_S = 10; // between samples; the engine gives one a second
const WINDOW_S = 10; // over which moves per second are counted

/** Moves chosen per second up to sample `index`, over the last seconds; null where there is no data. */
function movesPerSecond(samples: readonly Sample[], index: number): number | null {
  const now = samples[index];
  if (!now) return null;
  let start = index;
  while (start > 0 && now.at - (samples[start - 1]?.at ?? 0) <= WINDOW_S) start -= 1;
  const before = samples[start];
  if (!before || now.at - before.at < 1) return null;
  const done = now.stats.requests_finished - before.stats.requests_finished;
  return done < 0 ? null : done / (now.at - before.at); // a restarted engine counts from zero
}

export function Figures({ state }: { state: RunState }) {
  const { samples, run, agents } = state;
  if (run.status !== "running" || !agents.some((agent) => agent.config.type === "llm")) return null;
  const stats = samples.at(-1)?.stats;
  const figures: [string, string, string][] = [
    [t.figures.moves, compact(movesPerSecond(samples, samples.length - 1)), t.figureHints.moves],
    [t.figures.tokens, compact(stats?.tokens_per_s), t.figureHints.tokens],
    [t.figures.queue, number(stats?.num_waiting), t.figureHints.queue],
    [t.figures.hits, percent(stats?.prefix_hit_rate, 1), t.figureHints.hits],
    [t.figures.kv, percent(stats?.kv_usage), t.figureHints.kv],
  ];
  return (
    <dl class="figures">
      {figures.map(([name, value, hint]) => (
        <div key={name} title={hint}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function EngineTab({ live, state }: { live: LiveRun; state: RunState }) {
  const { samples } = state;
  useEffect(() => {
    const stop = new AbortController();
    get<{ samples: Sample[] }>(`/api/runs/${live.id}/engine`, stop.signal).then(
      (past) => live.addHistory(past.samples),
      () => undefined, // the stream's own samples remain
    );
    return () => stop.abort();
  }, [live]);

  const { at, ...charts } = useMemo(() => {
    // A moment without data after each sample that is followed by a pause: the line breaks there.
    const gaps = new Set(samples.flatMap((one, i) => ((samples[i + 1] ?? one).at - one.at > GAP_S ? [i] : [])));
    const of = (pick: (sample: Sample, index: number) => number | null): (number | null)[] =>
      samples.flatMap((sample, index) => (gaps.has(index) ? [pick(sample, index), null] : [pick(sample, index)]));
    const at = samples.flatMap((sample, index) => (gaps.has(index) ? [sample.at, sample.at + 1] : [sample.at]));
    const moves: Series[] = [{ label: t.figures.moves, values: of((_, index) => movesPerSecond(samples, index)) }];
    const tokens: Series[] = [{ label: t.figures.tokens, values: of(({ stats }) => stats.tokens_per_s) }];
    const queue: Series[] = [
      { label: t.running, values: of(({ stats }) => stats.num_running) },
      { label: t.waiting, values: of(({ stats }) => stats.num_waiting) },
    ];
    const hits: Series[] = [{ label: t.figures.hits, values: of(({ stats }) => stats.prefix_hit_rate) }];
    const kv: Series[] = [{ label: t.figures.kv, values: of(({ stats }) => stats.kv_usage) }];
    return { at, moves, tokens, queue, hits, kv };
  }, [samples]);

  if (samples.length === 0) return <p class="notice">{t.noEngine}</p>;
  return (
    <div class="charts">
      {(["moves", "tokens", "queue", "hits", "kv"] as const).map((name) => {
        const share = name === "hits" || name === "kv";
        return (
          <figure key={name} class="card panel">
            <figcaption>
              <h2>{name === "queue" ? t.requests : t.figures[name]}</h2>
              <p class="muted">{name === "queue" ? t.requestsHint : t.figureHints[name]}</p>
              {charts[name].length > 1 && (
                <p class="legend">
                  {charts[name].map((one, index) => (
                    <span key={one.label} class={`key${index}`}>
                      {one.label}
                    </span>
                  ))}
                </p>
              )}
            </figcaption>
            <Chart
              label={t.figures[name]}
              at={at}
              series={charts[name]}
              {...(share ? { max: 1 } : {})}
              format={share ? percent : compact}
            />
          </figure>
        );
      })}
    </div>
  );
}
