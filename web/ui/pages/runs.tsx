/** The home page: all tournaments of the database, the latest first. */

import { useEffect, useState } from "preact/hooks";
import { get, type ListedRun } from "../api";
import { date } from "../format";
import { t } from "../strings";
import { Shell } from "./shell";
import { StatusChip, about } from "./parts";

const REFRESH_MS = 3000;

export function RunsPage() {
  const [runs, setRuns] = useState<ListedRun[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    let timer = 0;
    const stop = new AbortController();
    const load = async (): Promise<void> => {
      try {
        if (!document.hidden) {
          setRuns((await get<{ runs: ListedRun[] }>("/api/runs", stop.signal)).runs);
          setError(null);
        }
      } catch {
        if (!stop.signal.aborted) setError(`${t.link["waiting"]}…`);
      }
      if (!stop.signal.aborted) timer = window.setTimeout(load, REFRESH_MS);
    };
    void load();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, []);

  return (
    <Shell title={t.product}>
      <div class="head">
        <h1>{t.runs}</h1>
        {error && <span class="muted">{error}</span>}
      </div>
      {!runs && !error && <p class="notice">{t.loading}</p>}
      {runs?.length === 0 && (
        <div class="notice">
          <h2>{t.noRuns}</h2>
          <p>{t.noRunsHint}</p>
          <pre>arena run --game janggi --agents 8</pre>
        </div>
      )}
      <ul class="runs">
        {runs?.map((run) => (
          <li key={run.id}>
            <a class="card run" href={`/runs/${run.id}`}>
              <div class="row">
                <h2>{run.name}</h2>
                <StatusChip status={run.imported ? "imported" : run.status} />
              </div>
              <p class="muted">{about(run, run.title, run.games_finished, date(run.created_at))}</p>
              {!run.imported && (
                <>
                  <div class="bar" role="img" aria-label={t.progress(run.games_finished, run.games)}>
                    <i class="finished" style={{ flexGrow: run.games_finished }} />
                    <i style={{ flexGrow: run.games - run.games_finished }} />
                  </div>
                  <p class="muted">{t.progress(run.games_finished, run.games)}</p>
                </>
              )}
            </a>
          </li>
        ))}
      </ul>
    </Shell>
  );
}
