"""What a person sees: tables, pictures and progress. It reads results and computes none."""
