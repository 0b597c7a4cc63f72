"""Every theorem on one page that follows sliders, and maps of where local SGD beats mini-batch SGD."""
