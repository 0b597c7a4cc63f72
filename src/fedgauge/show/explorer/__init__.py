"""The explorer: one HTML file in which every theorem follows the sliders, written from the Python that is tested."""
