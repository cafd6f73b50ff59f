"""Where requests come in: OpenAI HTTP (a cluster gateway without Envoy) and gRPC. One picker behind them."""
