/** The shell of the pages: which page an address shows. */

import { render } from "preact";
import { useEffect } from "preact/hooks";
import { leaveRun } from "./live";
import { GamePage } from "./pages/game";
import { RunPage } from "./pages/run";
import { RunsPage } from "./pages/runs";
import { Shell } from "./pages/shell";
import { useRoute } from "./router";
import { t } from "./strings";
import "./style/base.css";
import "./style/board.css";
import "./style/run.css";
import "./style/tables.css";
import "./style/game.css";

function App() {
  const route = useRoute();
  const inRun = route.page === "run" || route.page === "game";
  useEffect(() => {
    if (!inRun) leaveRun();
  }, [inRun]);
  switch (route.page) {
    case "runs":
      return <RunsPage />;
    case "run":
      return <RunPage id={route.run} tab={route.tab} />;
    case "game": // keyed by game: nothing of one game can show in another
      return <GamePage key={`${route.run}/${route.number}`} id={route.run} number={route.number} />;
    case "missing":
      return (
        <Shell title={t.product}>
          <p class="notice">
            {t.notFound} <a href="/">{t.backHome}</a>
          </p>
        </Shell>
      );
  }
}

render(<App />, document.body);
