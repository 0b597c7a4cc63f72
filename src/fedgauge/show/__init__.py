"""How results are shown: pages, notebooks, pictures and the terminal."""
