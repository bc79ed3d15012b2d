/** What is known of one move: how likely each legal move was, and where the time and the tokens went. */

import { useState } from "preact/hooks";
import type { Agent, Move } from "../api";
import { DASH, number as count, percent, seconds } from "../format";
import { squaresOf } from "../position";
import { t } from "../strings";

const SHOWN = 12;

interface Props {
  move: Move | undefined;
  /** As in the list of moves. */
  number: number;
  agent: Agent | undefined;
  /** The tournament's opening gave this move. */
  opening: boolean;
}

export function Probabilities({ move, number, agent, opening }: Props) {
  if (!move) {
    return (
      <section class="card panel odds">
        <h2>{t.thisMove}</h2>
        <p class="muted">{t.startHint}</p>
      </section>
    );
  }
  const recorded = agent?.config.type === "player";
  return (
    <section class="card panel odds">
      <h2>
        {number}
        {move.side === 0 ? "." : "…"} {squaresOf(move.uci)?.pass ? t.pass : move.notation}{" "}
        <span class="muted">{[move.uci !== move.notation && move.uci, agent?.name].filter(Boolean).join(" · ")}</span>
      </h2>
      {move.prompt_restarted && <p class="note">{t.restarted}</p>}
      {opening && <p class="muted">{t.opening}</p>}
      <Facts move={move} />
      {!opening && !recorded && (
        <>
          <h3>{t.probabilities}</h3>
          <Bars distribution={move.distribution ?? {}} played={move.uci} />
        </>
      )}
      {move.thoughts && (
        <>
          <h3>{recorded ? t.comment : t.thoughts}</h3>
          <p class="thoughts">{move.thoughts}</p>
        </>
      )}
    </section>
  );
}

function Bars({ distribution, played }: { distribution: Record<string, number>; played: string }) {
  const [all, setAll] = useState(false);
  const sorted = Object.entries(distribution).sort((a, b) => b[1] - a[1]);
  if (sorted.length === 0) return <p class="muted">{t.noProbabilities}</p>;
  const most = sorted[0]?.[1] || 1;
  const place = sorted.findIndex(([uci]) => uci === played);
  const shown = all ? sorted : sorted.slice(0, SHOWN);
  const own = sorted[place];
  if (!all && own && place >= SHOWN) shown.push(own);
  return (
    <>
      <ol class="bars">
        {shown.map(([uci, share]) => (
          <li key={uci} class={uci === played ? "played" : ""}>
            <span class="uci">{uci}</span>
            <span class="track">
              <i style={{ width: `${(share / most) * 100}%` }} />
              {uci === played && <em>{t.chosen}</em>}
            </span>
            <span class="num">{percent(share, 1)}</span>
          </li>
        ))}
      </ol>
      {sorted.length > SHOWN && (
        <button type="button" class="plain" onClick={() => setAll(!all)}>
          {all ? t.showFewer : t.showAll(sorted.length)}
        </button>
      )}
    </>
  );
}

function Facts({ move }: { move: Move }) {
  const { prompt_tokens: prompt, cached_tokens: cached, elapsed_s: elapsed } = move;
  const parts = [
    [t.queue, move.queue_s],
    [t.prefill, move.prefill_s],
    [t.decode, move.decode_s],
  ] as const;
  const known = parts.some(([, span]) => span !== null);
  if (elapsed === null && !known && prompt === null) return null; // nothing is known, as in many records
  return (
    <dl class="facts">
      <div>
        <dt>{t.answered}</dt>
        <dd>{seconds(elapsed)}</dd>
        {known && (
          <dd class="spans">
            {parts.map(([name, span]) => (
              <span key={name}>
                {name} {seconds(span)}
              </span>
            ))}
          </dd>
        )}
      </div>
      {move.legal_mass !== null && (
        <div title={t.legalMassHint}>
          <dt>{t.legalMass}</dt>
          <dd>{percent(move.legal_mass, 1)}</dd>
          <dd class="meter">
            <i style={{ width: `${move.legal_mass * 100}%` }} />
          </dd>
        </div>
      )}
      {prompt !== null && (
        <div>
          <dt>{t.prompt}</dt>
          <dd>{t.promptTokens(prompt)}</dd>
          <dd class="spans">
            <span>{t.cached(cached === null || !prompt ? DASH : percent(cached / prompt))}</span>
            {move.scored_rows !== null && (
              <span>
                {t.scored} {count(move.scored_rows)}
              </span>
            )}
          </dd>
        </div>
      )}
      {move.entropy !== null && (
        <div title={t.entropyHint}>
          <dt>{t.entropy}</dt>
          <dd>{count(move.entropy / Math.LN2, 2)}</dd>
        </div>
      )}
    </dl>
  );
}
