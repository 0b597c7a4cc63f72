"""Where the workers' part of a round runs: in this process or in several."""
