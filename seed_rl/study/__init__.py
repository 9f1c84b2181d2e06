"""Studies: many runs of sampled configurations, their table and plots.

    seed-rl study SPEC.json

docs/studies.md describes the spec and the results. In the order in which data flows: `spec` reads
the spec, `trials` has Optuna draw configurations from it through `sampling`, `directory` keeps the
runs on disk, `runner` runs them, `performance` rates a run, `results` makes the table,
`percentiles` computes what each choice contributes, and `plots` draws it.
"""
