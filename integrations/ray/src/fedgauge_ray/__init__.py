"""fedgauge on a Ray cluster: ``--engine ray`` and ``fedgauge.Compute(engine="ray")`` find it by its entry point."""
