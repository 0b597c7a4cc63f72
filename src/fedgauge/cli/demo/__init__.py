"""The two parts of ``fedgauge demo``: a network on real digits, and quadratics, for which everything is exact."""
