"""What ``fedgauge demo`` shows: a network on real digits, and the idea on quadratics, where everything is exact."""
