"""The op table: rows by kind."""
