"""page(): one self-contained HTML document in the style that all pages of the package share.

Light or dark as the reader's system asks, from a phone's width to a desktop's; nothing is fetched
when it is opened. A page that needs more brings its own rules and uses the colours below by name.
"""

from __future__ import annotations

from html import escape

__all__ = ["page"]

_BASE = """
:root{--ink:#1d2129;--grey:#667085;--paper:#fbfbfa;--card:#fff;--line:#e3e5e8;--link:#0b5cad;
 --good:#00734f;--bad:#b3261e;--tint:#f1f3f5;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--grey:#9aa4b2;--paper:#14171b;
 --card:#1b1f24;--line:#323841;--link:#7ab7ff;--good:#4cc79a;--bad:#ff8a80;--tint:#22272e}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
 font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:2rem;line-height:1.2;margin:.2em 0 .6em;text-wrap:balance;overflow-wrap:anywhere}
h2{font-size:1.45rem;margin:2.6em 0 .5em;padding-top:1em;border-top:1px solid var(--line)}
h3{font-size:1.2rem;margin:2.2em 0 .5em}h4{font-size:1.02rem;margin:1.8em 0 .5em}
p{max-width:75ch;margin:.6em 0;overflow-wrap:anywhere}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
nav{display:flex;flex-wrap:wrap;gap:.3em 1.4em;font-size:.92rem;margin-bottom:1rem}
code,pre{font:.9em/1.5 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
code{background:var(--tint);padding:.1em .3em;border-radius:3px}
pre{background:var(--tint);padding:.7em 1em;border-radius:6px;overflow-x:auto}
figure{margin:1.6em 0;padding:1rem;background:#fff;border:1px solid var(--line);border-radius:8px}
figure img{display:block;max-width:100%;height:auto;margin:0 auto}
.wide{overflow-x:auto}.wide img{max-width:max(100%,42rem)}
figcaption{color:#4a5260;font-size:.9rem;max-width:85ch;margin:.8em auto 0}
figcaption code{background:#f1f3f5}
.scroll{overflow-x:auto}
.tall{max-height:38em;width:fit-content;max-width:100%;overflow-y:auto;
 border:1px solid var(--line);border-radius:6px}
.tall thead th{position:sticky;top:0;background:var(--card)}
@media print{.tall{max-height:none}}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;margin:.4em 0}
th,td{padding:.34em .8em;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{color:var(--grey);font-weight:600;white-space:nowrap}
.t{white-space:nowrap}td.w{min-width:13em}
.r{text-align:right;white-space:nowrap}.c{text-align:center;white-space:nowrap}
td.say{min-width:24em}th.c{white-space:normal;max-width:9em}
.note,small{color:var(--grey);font-size:.85rem}
.good{color:var(--good)}.bad{color:var(--bad);font-weight:700}.idle{color:var(--grey)}
.verdict{font-weight:600;border-left:3px solid currentColor;padding-left:.8em}
details{margin:.7em 0}summary{cursor:pointer;color:var(--link)}
footer{margin-top:4rem;color:var(--grey);font-size:.85rem}
"""


def page(title: str, body: str, extra_css: str = "") -> str:
    """The whole document. `title` is plain text; `body` and `extra_css` are taken as they are."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_BASE}{extra_css}</style></head>\n"
        f"<body><main>\n{body}</main></body></html>\n"
    )
