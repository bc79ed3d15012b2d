/** Addresses without page loads: links are ordinary anchors, caught where they are pressed. */

import { useEffect, useState } from "preact/hooks";

type Route =
  | { page: "runs" }
  | { page: "run"; run: number; tab: "boards" | "standings" | "engine" }
  | { page: "game"; run: number; number: number }
  | { page: "missing" };

export function parse(path: string): Route {
  const game = /^\/runs\/(\d+)\/games\/(\d+)\/?$/.exec(path);
  if (game) return { page: "game", run: Number(game[1]), number: Number(game[2]) };
  const run = /^\/runs\/(\d+)(?:\/(standings|engine))?\/?$/.exec(path);
  if (run) return { page: "run", run: Number(run[1]), tab: (run[2] ?? "boards") as "boards" | "standings" | "engine" };
  return path === "/" ? { page: "runs" } : { page: "missing" };
}

export function useRoute(): Route {
  const [path, setPath] = useState(location.pathname);
  useEffect(() => {
    const update = (): void => setPath(location.pathname);
    const press = (event: MouseEvent): void => {
      const link = (event.target as Element).closest?.("a");
      const elsewhere = event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
      if (!link || elsewhere || link.origin !== location.origin || link.target || event.defaultPrevented) return;
      event.preventDefault();
      if (link.pathname === location.pathname) return;
      history.pushState(null, "", link.pathname);
      if (!link.hasAttribute("data-keep-scroll")) scrollTo(0, 0);
      update();
    };
    addEventListener("popstate", update);
    document.addEventListener("click", press);
    return () => {
      removeEventListener("popstate", update);
      document.removeEventListener("click", press);
    };
  }, []);
  return parse(path);
}
