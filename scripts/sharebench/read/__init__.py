"""From records to tables: statistics, rows, summaries and what people read."""
