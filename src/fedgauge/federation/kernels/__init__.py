"""Fast paths: the operations on rows, each written for one family of models."""
