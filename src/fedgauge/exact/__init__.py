"""What is known in closed form on quadratics: expectations, and where local SGD beats mini-batch SGD."""
