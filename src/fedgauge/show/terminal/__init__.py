"""What a terminal shows: tables, sentences and progress."""
