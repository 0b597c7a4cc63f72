"""Whether L_h decides: federations of many kinds, the slowdown of each, and how well every lens predicts it."""
