"""Closed-form results on quadratics: exact expectations, and where local SGD beats mini-batch SGD."""
