"""The round loop, the workers' part of a round, and the engines that compute it."""
