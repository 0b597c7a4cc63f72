"""The paper's tables and figures, each by one command."""
