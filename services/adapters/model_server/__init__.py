"""Model servers: reading their metrics pages and versions. Only this room knows an engine's names."""
