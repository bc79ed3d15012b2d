/** Standings with rating intervals, and the crosstable. */

import { number, score } from "../format";
import { crosstable, type RunState } from "../state";
import type { Standing } from "../api";
import { t } from "../strings";
import { persona } from "./parts";

export function StandingsTab({ state }: { state: RunState }) {
  return (
    <div class="stack">
      <Table state={state} />
      <Crosstable state={state} />
    </div>
  );
}

/** The short form beside the boards. */
export function MiniStandings({ state }: { state: RunState }) {
  return (
    <section class="card panel mini">
      <h2>{t.standings}</h2>
      <ol>
        {state.standings.map((row) => (
          <li key={row.agent}>
            <span class="name">{row.name}</span>
            <span class="muted">{row.played}</span>
            <b>{score(row.score)}</b>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Table({ state }: { state: RunState }) {
  const { standings, agents } = state;
  const ends = standings.flatMap((row) => [row.low, row.high, row.rating]).filter((end) => end !== null);
  const low = Math.min(...ends);
  const high = Math.max(...ends);
  const notes = [...new Set(standings.map((row) => row.rating_note).filter((note) => note !== null))];
  return (
    <section class="card panel">
      <table class="standings">
        <thead>
          <tr>
            <th class="num">#</th>
            <th>{t.agent}</th>
            <th class="num">{t.score}</th>
            <th class="num extra">{t.played}</th>
            <th class="num wdl" title={t.wdl}>
              {t.wdlShort.map((letter) => (
                <span key={letter}>{letter}</span>
              ))}
            </th>
            <th class="num">{t.rating}</th>
            <th class="interval">{t.ratingInterval}</th>
          </tr>
        </thead>
        <tbody>
          {standings.map((row, index) => {
            const agent = agents[row.agent];
            return (
              <tr key={row.agent}>
                <td class="num muted">{index + 1}</td>
                <td>
                  <b>{row.name}</b>
                  {agent && <small title={String(agent.config["style"] ?? "") || undefined}>{persona(agent)}</small>}
                </td>
                <td class="num">
                  <b>{score(row.score)}</b>
                </td>
                <td class="num extra">{row.played}</td>
                <td class="num wdl">
                  {[row.wins, row.draws, row.losses].map((count, kind) => (
                    <span key={kind}>{count}</span>
                  ))}
                </td>
                <td class="num">{rating(row)}</td>
                <td class="interval">
                  <Interval row={row} low={low} high={high} />
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {notes.map((note) => (
        <p key={note} class="muted note">
          {standings.flatMap((row) => (row.rating_note === note ? row.name : [])).join(", ")}: {note}
        </p>
      ))}
    </section>
  );
}

/** A rating, or the bound that is all that is known of it. */
function rating({ rating, low, high }: Standing): string {
  if (rating !== null) return number(rating);
  if (low !== null) return t.above(number(low));
  return high === null ? number(null) : t.below(number(high));
}

function Interval({ row, low, high }: { row: Standing; low: number; high: number }) {
  if (row.rating === null || row.low === null || row.high === null || high <= low) return null;
  const place = (value: number): string => `${((value - low) / (high - low)) * 100}%`;
  return (
    <div class="range" title={`${number(row.low)} … ${number(row.high)}`}>
      <i style={{ left: place(row.low), right: `${100 - ((row.high - low) / (high - low)) * 100}%` }} />
      <b style={{ left: place(row.rating) }} />
    </div>
  );
}

function Crosstable({ state }: { state: RunState }) {
  const { standings, agents, games } = state;
  const table = crosstable(games, agents.length);
  return (
    <section class="card panel">
      <h2>{t.crosstable}</h2>
      <p class="muted">{t.crosstableHint}</p>
      <table class="cross">
        <thead>
          <tr>
            <td />
            {standings.map((row, index) => (
              <th key={row.agent} scope="col" title={row.name}>
                {index + 1}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {standings.map((row, index) => (
            <tr key={row.agent}>
              <th scope="row">
                <span class="muted">{index + 1}</span> {row.name}
              </th>
              {standings.map((column) => {
                const cell = table[row.agent]?.[column.agent];
                if (row.agent === column.agent) return <td key={column.agent} class="self" />;
                if (!cell?.games) return <td key={column.agent} />;
                const share = cell.score / cell.games;
                return (
                  <td
                    key={column.agent}
                    style={{ "--share": share }}
                    title={t.cell(row.name, column.name, score(cell.score), cell.games)}
                  >
                    {score(cell.score)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
