"""What the papers share: claims and verdicts, drawing, pages, validation, and their commands."""
