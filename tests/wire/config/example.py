"""A small fleet as operators write it: every kind once, all of it sound."""

from typing import Final

KEY: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

FLEET: Final = """\
apiVersion: gir.dev/v1alpha1
kind: Fleet
metadata: {name: demo}
spec:
  clusters:
    - id: eu-west-a
      region: eu-west
      jurisdiction: eu
      gatewayUrl: http://127.0.0.1:8001
      pickerAddress: 127.0.0.1:9002
      probeUrl: http://127.0.0.1:8001/readyz
    - {id: us-east-a, region: us-east, jurisdiction: us, gatewayUrl: "http://[::1]:8002/"}
  models:
    - name: meta-llama/Llama-3.1-8B
      aliases: [llama]
    - name: mistral
"""

ROUTING_POLICY: Final = """\
apiVersion: gir.dev/v1alpha1
kind: RoutingPolicy
metadata: {name: demo}
spec:
  health: {silenceStaleMs: 2000, rampFloor: 0.2}
  failover:
    maxAttempts: 2
    timeouts: {connectMs: 500}
  routing: {panic: fail-503, overprovisioning: 2}
"""

TENANT: Final = """\
apiVersion: gir.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec:
  models: [meta-llama/Llama-3.1-8B]
  residency:
    allowJurisdictions: [eu]
    allowRegions: []
    denyJurisdictions: [us]
    denyRegions: [us-east]
  priorityCeiling: 5
"""

TOKEN_KEYS: Final = f"""\
apiVersion: gir.dev/v1alpha1
kind: TokenKeys
metadata: {{name: eu-west}}
spec:
  keys:
    - {{kid: gir-1, publicKey: "{KEY}"}}
"""

SITE: Final = """\
apiVersion: gir.dev/v1alpha1
kind: Site
metadata: {name: laptop}
spec:
  stateDir: /var/lib/gir
  kafka: {bootstrap: ["127.0.0.1:9092"]}
  redis: {url: "redis://127.0.0.1:6379/0"}
  regions:
    - {region: eu-west, jurisdiction: eu}
    - {region: us-east, jurisdiction: us, httpPort: 8180, grpcPort: 0}
  pickers:
    - cluster: eu-west-a
      httpPort: 8001
      pools:
        - {name: llama, model: meta-llama/Llama-3.1-8B, simulatedPods: 2}
        - name: mistral
          model: mistral
          engine: vllm
          pods: [{id: mistral-0, address: "127.0.0.1:8100"}]
    - cluster: us-east-a
      httpPort: 8002
      grpcPort: 0
      accept: direct
      pools: [{name: llama, model: meta-llama/Llama-3.1-8B, simulatedPods: 1, simulatedProfile: a10-8b}]
"""

EVERYTHING: Final = f"{FLEET}---\n{ROUTING_POLICY}---\n{TENANT}---\n{TOKEN_KEYS}---\n{SITE}"
