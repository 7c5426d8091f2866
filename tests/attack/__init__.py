"""An attack on the hardmax engine: seeded starts, an oracle of its own, outcomes counted.

`oracle` is the definition in integers and imports nothing of the package; `starts` makes the
configurations; `calls` asks the package about one; `compare` judges the answers by the oracle;
`workers` runs cases in processes of their own, so that a crash is an outcome; `python -m
tests.attack` is the long run.
"""
