/** One tournament: its progress and figures, and under them the boards, the standings or the engine. */

import { useRun } from "../live";
import { progress, type RunState } from "../state";
import { t } from "../strings";
import { BoardsTab } from "./boards";
import { EngineTab, Figures } from "./engine";
import { StatusChip, about } from "./parts";
import { Shell, Waiting } from "./shell";
import { StandingsTab } from "./standings";

type Tab = "boards" | "standings" | "engine";

export function RunPage({ id, tab }: { id: number; tab: Tab }) {
  const live = useRun(id);
  const { state } = live.view;
  const title = state?.run.name ?? t.product;
  return (
    <Shell title={title} crumbs={[{ text: t.runs, href: "/" }, ...(state ? [{ text: title }] : [])]} view={live.view}>
      {!state ? (
        <Waiting view={live.view} />
      ) : (
        <>
          <Head state={state} />
          <Figures state={state} />
          <nav class="tabs">
            {(["boards", "standings", "engine"] as const).map((name) => (
              <a
                key={name}
                href={`/runs/${id}${name === "boards" ? "" : `/${name}`}`}
                aria-current={name === tab ? "page" : undefined}
                data-keep-scroll
              >
                {t.tabs[name]}
              </a>
            ))}
          </nav>
          {tab === "boards" && <BoardsTab state={state} />}
          {tab === "standings" && <StandingsTab state={state} />}
          {tab === "engine" && <EngineTab live={live} state={state} />}
        </>
      )}
    </Shell>
  );
}

function Head({ state }: { state: RunState }) {
  const { run, games, rules } = state;
  const count = progress(games);
  return (
    <section class="head-run">
      <div class="head">
        <h1>{run.name}</h1>
        <StatusChip status={run.imported ? "imported" : run.status} />
        <p class="muted">{about(run, rules.title, count.finished)}</p>
      </div>
      {!run.imported && (
        <div class="bar" role="img" aria-label={t.progress(count.finished, games.length)}>
          <i class="finished" style={{ flexGrow: count.finished }} />
          <i class="playing" style={{ flexGrow: count.playing }} />
          <i style={{ flexGrow: count.pending }} />
        </div>
      )}
    </section>
  );
}
