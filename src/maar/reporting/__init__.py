"""What runs and certifications have shown, as a page, tables and figures. Reads files only."""
