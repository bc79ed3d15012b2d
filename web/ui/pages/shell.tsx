/** What every page has around it: the name, the way back, and whether the connection is alive. */

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { View } from "../live";
import { t } from "../strings";

interface Crumb {
  text: string;
  href?: string;
}

interface Props {
  title: string;
  crumbs?: Crumb[];
  view?: View;
  children: ComponentChildren;
}

export function Shell({ title, crumbs = [], view, children }: Props) {
  useEffect(() => {
    document.title = title === t.product ? title : `${title} · ${t.product}`;
  }, [title]);
  return (
    <>
      <header class="top">
        <a class="brand" href="/">
          <img src="/favicon.svg" alt="" width="26" height="26" />
          {t.product}
        </a>
        <nav class="crumbs">
          {crumbs.map((crumb) => (
            <span key={crumb.text}>{crumb.href ? <a href={crumb.href}>{crumb.text}</a> : crumb.text}</span>
          ))}
        </nav>
        {view && !view.refusal && <Link view={view} />}
      </header>
      <main>{children}</main>
    </>
  );
}

function Link({ view }: { view: View }) {
  const done = view.link === "live" && view.state !== null && view.state.run.status !== "running";
  return (
    <span class={`link ${done ? "done" : view.link}`} role="status">
      <i aria-hidden="true" />
      {done ? t.linkDone : t.link[view.link]}
    </span>
  );
}

/** What a page says before its data is there, or instead of it. */
export function Waiting({ view }: { view: View }) {
  return (
    <p class="notice">
      {view.refusal ?? t.loading} {view.refusal && <a href="/">{t.backHome}</a>}
    </p>
  );
}
