"""Model-server simulator: an OpenAI-compatible pod that behaves like vLLM under load."""
