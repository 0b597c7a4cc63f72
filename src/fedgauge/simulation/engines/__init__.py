"""Where the workers' part of a round is computed: in this process, in several processes or on a cluster."""
