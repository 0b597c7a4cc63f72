"""The report: one HTML file that shows what was asked, measured, promised and reached."""
