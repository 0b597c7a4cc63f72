"""What the explorer and the report share: formulas, numbers and colours."""
