// The report's style sheet, and the script that sorts its tables; everything can be read without it.
#pragma once

#include <string_view>

namespace flashdma_bwd::bench {

inline constexpr std::string_view kPageStyle =
    R"(:root{--surface:#fff;--raised:#f5f7f8;--text:#1c2024;--muted:#596067;--line:#d9dde1;--link:#0b5cad;--bar:0%;--bar-color:#7db2e8}
@media (prefers-color-scheme:dark){:root{--surface:#15181b;--raised:#1e2226;--text:#e6e9ec;--muted:#a3abb3;--line:#343a40;--link:#7ab8f5;--bar-color:#2f6fae}}
*{box-sizing:border-box}
html{background:var(--surface);color:var(--text);font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;scroll-padding-top:.5rem}
body{margin:0 auto;max-width:108rem;padding:1rem 1.25rem 4rem}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.15rem;margin:2.25rem 0 .5rem;padding-top:.75rem;border-top:1px solid var(--line)}
p{margin:.4rem 0;max-width:80ch}
a{color:var(--link)}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.15rem 1.1rem;margin:.25rem 0;padding:0}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:.5rem 0}
dt{color:var(--muted)}
dd{margin:0;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
code{font:12px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
.muted,.none{color:var(--muted)}
.scroll{overflow-x:auto;margin:.6rem 0 1rem;border:1px solid var(--line);border-radius:4px}
.scroll:focus-visible,a:focus-visible,button:focus-visible{outline:2px solid var(--link);outline-offset:1px}
table{border-collapse:collapse;width:100%}
caption{caption-side:top;text-align:left;padding:.45rem .6rem;color:var(--muted);position:sticky;left:0;max-width:calc(100vw - 3rem)}
th,td{padding:.25rem .6rem;text-align:left;vertical-align:top;font-weight:400;border-top:1px solid var(--line)}
thead th{font-weight:600;background:var(--raised);vertical-align:bottom}
.short{white-space:nowrap}
.long{min-width:17rem;max-width:30rem}
tbody tr:hover>*{background-color:var(--raised)}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;background:linear-gradient(var(--bar-color),var(--bar-color)) left bottom/var(--bar) 3px no-repeat}
thead .number{background:var(--raised);white-space:normal;min-width:5.5rem;max-width:9rem}
thead button{all:unset;cursor:pointer;font-weight:600}
thead button::after{content:"\2195";color:var(--muted);font-weight:400;padding-left:.3em}
th[aria-sort=ascending] button::after{content:"\2191";color:var(--text)}
th[aria-sort=descending] button::after{content:"\2193";color:var(--text)}
.plain{border:0}
.chart{max-width:100%;min-width:40rem;height:auto;display:block}
@media print{.scroll{overflow:visible;border:0}nav{display:none}}
)";

inline constexpr std::string_view kSortScript = R"(for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], headings = [...table.tHead.rows[0].cells];
  if (body.rows.length < 2) continue;
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const numeric = heading.classList.contains("number");
      const before = heading.getAttribute("aria-sort");
      const down = before ? before === "ascending" : numeric;
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const compare = (a, b) => numeric
        ? a.cells[column].dataset.key - b.cells[column].dataset.key
        : a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", {numeric: true});
      body.append(...[...body.rows].sort((a, b) => down ? compare(b, a) : compare(a, b)));
    });
  });
}
)";

}  // namespace flashdma_bwd::bench
