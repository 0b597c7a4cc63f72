"""Federations: what N workers compute on rows of models."""
