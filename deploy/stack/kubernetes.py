"""One Kubernetes API server with its etcd on loopback, and the building of both from the Go module proxy.

The programs are built once into `.cache/kubernetes/`, in a folder named after the pinned modules, so that a
changed version is built anew and an unchanged one never is. No kubelet, scheduler or controller runs: tests
write the pods themselves, so what they watch is the real API and nothing moves behind their back.
"""

import hashlib
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import httpx
import yaml

from deploy.stack.certificates import write_certificates, write_key
from deploy.stack.errors import PartMissingError
from deploy.stack.ports import free_port
from deploy.stack.process import Process

HERE = Path(__file__).resolve().parent
MODULE = HERE / "programs"
CACHE = HERE.parents[1] / ".cache" / "kubernetes"
PROGRAMS = {"etcd": "go.etcd.io/etcd/server/v3", "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver"}
BUILD_TIMEOUT_S = 1800.0
START_TIMEOUT_S = 60.0
ADMIN_TOKEN = "admin-of-the-loopback"  # noqa: S105  # It opens a server on loopback that holds test data.
ADMIN_USER = "admin"


def programs_directory() -> Path:
    """Where the programs of these pins are kept, whether or not they are there yet."""
    pins = b"".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    return CACHE / hashlib.sha256(pins).hexdigest()[:12]


def build_programs() -> Path:
    """Build both programs into the cache unless they are there; their folder.

    A first build takes some six minutes on two cores, and seconds where Go has cached it. Raises
    `PartMissingError` when Go is missing or cannot have what it needs.
    """
    directory = programs_directory()
    if directory.is_dir():
        return directory
    go = shutil.which("go")
    if go is None:
        raise PartMissingError("go is not on PATH (it builds the Kubernetes API server and etcd)")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as unfinished:
        target = Path(unfinished) / "programs"
        target.mkdir()
        for name, package in PROGRAMS.items():
            options = ["-mod=readonly", "-ldflags=-s -w", "-o", str(target / name)]
            done = subprocess.run(
                [go, "build", *options, package],
                cwd=MODULE,
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
            if done.returncode != 0:
                raise PartMissingError(f"go could not build {name}: {_last_line(done.stderr)}")
        try:
            # The folder appears complete or not at all.
            target.rename(directory)
        except OSError:
            if not directory.is_dir():  # Otherwise another run was faster, with the same programs.
                raise
    return directory


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1] if lines else "it gave no reason"


def _built_programs() -> Path:
    directory = programs_directory()
    if not directory.is_dir():
        raise PartMissingError(
            "the Kubernetes API server is not in .cache/kubernetes (`make kubernetes` builds it)"
        )
    return directory


class KubernetesServer:
    """An API server that can be stopped, killed, paused and started again on the same port and data.

    Authorization is RBAC. `ADMIN_TOKEN` may do everything; tokens of service accounts are had by the API's own
    TokenRequest.
    """

    def __init__(self, directory: Path) -> None:
        programs = _built_programs()
        self.port = free_port()
        self.ca_file = directory / "ca.crt"
        self._directory = directory
        etcd_port, peer_port = free_port(), free_port()
        etcd_url, peer_url = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
        etcd = {
            "data-dir": str(directory / "etcd-data"),
            "listen-client-urls": etcd_url,
            "advertise-client-urls": etcd_url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": f"default={peer_url}",
            "log-level": "warn",
        }
        self.etcd = Process("etcd", [str(programs / "etcd"), *_options(etcd), "--unsafe-no-fsync"], directory)
        api_server = {
            "etcd-servers": etcd_url,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": str(self.port),
            "tls-cert-file": str(directory / "server.crt"),
            "tls-private-key-file": str(directory / "server.key"),
            "cert-dir": str(directory),
            "service-account-issuer": "https://127.0.0.1",
            "service-account-key-file": str(directory / "accounts.key"),
            "service-account-signing-key-file": str(directory / "accounts.key"),
            "token-auth-file": str(directory / "tokens.csv"),
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.0.0.0/24",
            # Without controllers nobody makes a namespace's default account; pods are written without one.
            "disable-admission-plugins": "ServiceAccount",
            "endpoint-reconciler-type": "none",
        }
        self.process = Process(
            "kube-apiserver", [str(programs / "kube-apiserver"), *_options(api_server)], directory
        )

    @property
    def url(self) -> str:
        """The server's address as a kubeconfig has it."""
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts etcd and the API server and returns once it is ready."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if not self.ca_file.exists():
            write_certificates(self._directory)
            write_key(self._directory / "accounts.key")
            (self._directory / "tokens.csv").write_text(
                f'{ADMIN_TOKEN},{ADMIN_USER},{ADMIN_USER},"system:masters"\n'
            )
        if not self.etcd.running:
            self.etcd.start()
        self.process.start()
        self.process.wait_ready(self._is_ready, START_TIMEOUT_S)

    def stop(self) -> None:
        """Ends the API server the orderly way (SIGTERM); etcd and the data stay."""
        self.process.stop()

    def kill(self) -> None:
        """Kills both at once (SIGKILL)."""
        self.process.kill()
        self.etcd.kill()

    def pause(self) -> None:
        """Freezes the API server (SIGSTOP): connections stay open and nothing answers."""
        self.process.pause()

    def resume(self) -> None:
        """Lets a frozen API server go on."""
        self.process.resume()

    def client(self, token: str = ADMIN_TOKEN) -> httpx.Client:
        """Return a plain HTTPS client of the API; the caller closes it."""
        return httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=str(self.ca_file)),
            timeout=30.0,
            trust_env=False,
        )

    def kubeconfig(self, token: str = ADMIN_TOKEN, namespace: str = "default") -> Path:
        """Write a kubeconfig for `token` and return its path."""
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "loopback",
            "clusters": [
                {
                    "name": "loopback",
                    "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)},
                }
            ],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [
                {
                    "name": "loopback",
                    "context": {"cluster": "loopback", "user": "user", "namespace": namespace},
                }
            ],
        }
        file = (
            self._directory / f"kubeconfig-{hashlib.sha256(f'{token} {namespace}'.encode()).hexdigest()[:8]}"
        )
        file.write_text(yaml.safe_dump(config))
        return file

    def _is_ready(self) -> bool:
        try:
            with self.client() as client:
                return client.get("/readyz", timeout=2.0).text == "ok"
        except httpx.HTTPError:
            return False


def _options(options: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]
