"""Gateway documents that several tests change one field of."""

import copy
from collections.abc import Mapping
from typing import Any

CONFIG: Mapping[str, Any] = {
    "apiVersion": "inference.sagemaker.aws.amazon.com/v1alpha1",
    "kind": "InferenceGatewayConfig",
    "metadata": {"name": "demo", "namespace": "models", "labels": {"team": "ml"}},
    "spec": {
        "bbr": {"enabled": True, "replicas": 3, "defaultBackend": "qwen", "maxRequestBodyBytes": 1048576},
        "tls": {"acmArn": "arn:aws:acm:us-west-2:123456789012:certificate/0a1b-2c"},
        "auth": {
            "jwt": {
                "provider": {
                    "name": "corp",
                    "issuer": "https://issuer.example",
                    "remoteJWKS": {"uri": "https://issuer.example/jwks"},
                    "audiences": ["gateway"],
                    "requiredClaims": [
                        {"name": "team", "values": ["ml"]},
                        {"name": "groups", "valueType": "StringArray", "values": ["a", "b"]},
                    ],
                }
            }
        },
        "observability": {"metrics": {"enabled": False}},
        "schedulers": [
            {
                "name": "qwen",
                "modelName": "Qwen/Qwen2.5-1.5B-Instruct",
                "modelSelector": {"matchLabels": {"app": "vllm-qwen"}},
                "targetPort": 8080,
                "appProtocol": "kubernetes.io/h2c",
                "engineType": "vllm",
                "weights": {"queue": 3, "kvCache": 0, "prefix": 5, "lru": 1},
                "loraAdapters": ["sql-lora", "chat-lora"],
                "routeTimeout": "90s",
            },
            {
                "name": "qwen-small",
                "modelName": "Qwen/Qwen2.5-0.5B-Instruct",
                "modelSelector": {"matchLabels": {"app": "vllm-qwen-small"}},
                "scheduler": "epp",
                "replicas": 1,
                "configMapRef": {"name": "plugins", "key": "default.yaml"},
            },
        ],
    },
}
"""Two models and every field."""

GATEWAY: Mapping[str, Any] = {
    "apiVersion": "gir.dev/v1alpha1",
    "kind": "InferenceGateway",
    "metadata": {"name": "demo", "namespace": "models"},
    "spec": {
        "auth": {
            "mode": "jwt",
            "jwt": {
                "name": "corp",
                "issuer": "https://issuer.example",
                "jwksUri": "https://issuer.example/jwks",
                "audiences": ["gateway"],
            },
        },
        "listeners": [{"name": "https", "tls": {}}],
        "bodyRouting": {"defaultPool": "llama"},
        "pools": [
            {
                "name": "llama",
                "selector": {"app": "llama"},
                "models": [{"name": "llama-8b", "aliases": ["gpt-4o"], "adapters": ["sql-lora"]}],
            },
            {"name": "qwen", "selector": {"app": "qwen"}, "models": [{"name": "qwen-7b"}]},
        ],
        "objectives": [{"name": "urgent", "priority": 10}],
        "rewrites": [
            {
                "name": "canary",
                "pool": "llama",
                "rules": [{"matches": ["llama-8b"], "targets": [{"model": "sql-lora", "weight": 1}]}],
            }
        ],
    },
}
"""Two pools without a fault."""

DROP = object()


def changed(tree: Mapping[str, Any], *changes: tuple[str, Any]) -> dict[str, Any]:
    """Return a copy of `tree` with values at paths such as `spec.pools.0.name`; `DROP` removes a field."""
    copied: Any = copy.deepcopy(dict(tree))
    for path, value in changes:
        at = copied
        *parents, last = path.split(".")
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if value is DROP:
            del at[last]
        else:
            at[int(last) if isinstance(at, list) else last] = value
    return dict(copied)
