"""Whether L_h decides: federations of many kinds, the slowdown of each, and what every lens said beforehand."""
