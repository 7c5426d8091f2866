"""Pictures and pages; nothing above this stage draws.

`style` is shared by all figures, `markers` says what a token looks like, `plot`, `flow_panels` and
`movie` draw runs. `report` is the page that holds text, tables, checks and pictures, `run_report`
makes one of a run; `tables` and `page` are its tables and the style that all pages share.
"""
