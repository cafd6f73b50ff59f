"""One Apache Kafka server in KRaft mode on loopback, and the fetching of its jars from Maven Central.

One Java process is broker and controller. The jars named by `pom.xml` are kept in `.cache/kafka/`, in a folder
named after the pom's content, so that a changed version is fetched anew and an unchanged one never is.
"""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from string import Template

from deploy.stack.errors import PartFailedError, PartMissingError
from deploy.stack.ports import free_port
from deploy.stack.process import Process

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "kafka"
START_TIMEOUT_S = 60.0
FORMAT_TIMEOUT_S = 60.0
FETCH_TIMEOUT_S = 900.0
# A broker with a handful of topics is at home in this; three of them fit on a small machine.
HEAP = "512m"
# The first-tier compiler and the serial collector start fastest; throughput of the broker is not what is tested.
JVM_OPTIONS = (f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def jars_directory() -> Path:
    """Where the jars of this pom are kept, whether or not they are there yet."""
    pom_digest = hashlib.sha256((HERE / "pom.xml").read_bytes()).hexdigest()
    return CACHE / pom_digest[:12]


def java() -> str:
    """The path of `java`; raises `PartMissingError` without it."""
    path = shutil.which("java")
    if path is None:
        raise PartMissingError("java is not on PATH (Apache Kafka needs Java 17)")
    return path


def fetch_jars() -> Path:
    """Brings the jars into the cache by Maven unless they are there; their folder.

    Raises `PartMissingError` when Java or Maven is missing or Maven cannot reach what it needs.
    """
    directory = jars_directory()
    java()
    if directory.is_dir():
        return directory
    maven = shutil.which("mvn")
    if maven is None:
        raise PartMissingError("mvn is not on PATH (it fetches Apache Kafka's jars)")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as unfinished:
        target = Path(unfinished) / "jars"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        command = [maven, "-q", "-B", "--strict-checksums", "-f", str(HERE / "pom.xml"), *goal]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise PartMissingError(f"Maven could not fetch Apache Kafka's jars: {_first_error(done.stdout)}")
        try:
            # The folder appears complete or not at all.
            target.rename(directory)
        except OSError:
            if not directory.is_dir():  # Otherwise another run was faster, with the same jars.
                raise
    return directory


def _first_error(output: str) -> str:
    errors = [line for line in output.splitlines() if "ERROR" in line]
    return errors[0] if errors else "it gave no reason"


def _installed_jars() -> Path:
    directory = jars_directory()
    if not directory.is_dir():
        raise PartMissingError("Apache Kafka's jars are not in .cache/kafka (`make kafka` fetches them)")
    return directory


class KafkaServer:
    """A Kafka server that can be stopped, killed, paused and started again on the same port and data."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        outlives_parent: bool = False,
    ) -> None:
        self.port = port or free_port()
        self._directory = directory
        self._data = directory / "kafka-data"
        self._settings_path = directory / "server.properties"
        self._controller_port = free_port()
        self._java = [java(), *JVM_OPTIONS, "-cp", f"{_installed_jars()}/*"]
        self._java.append(f"-Dlog4j2.configurationFile={HERE / 'log4j2.yaml'}")
        command = [*self._java, "kafka.Kafka", str(self._settings_path)]
        self.process = Process("kafka", command, directory, outlives_parent=outlives_parent)

    @property
    def bootstrap(self) -> str:
        """`host:port`, as `bootstrap_servers` and `--kafka` take it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts the broker and returns once it serves; the first start formats its data folder."""
        if not self._data.is_dir():
            self._format()
        self.process.start()
        self.process.wait_ready(lambda: "Kafka Server started" in self.process.stdout(), START_TIMEOUT_S)

    def stop(self) -> None:
        """Ends the broker the orderly way (SIGTERM); its data stay."""
        self.process.stop()

    def restart(self) -> None:
        """Stops and starts the broker on the same port and data."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kills the broker at once (SIGKILL); its data stay as they are on disk."""
        self.process.kill()

    def pause(self) -> None:
        """Freezes the broker (SIGSTOP): connections stay open and nothing answers."""
        self.process.pause()

    def resume(self) -> None:
        """Lets a frozen broker go on."""
        self.process.resume()

    def _format(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        template = Template((HERE / "server.properties").read_text())
        settings = template.substitute(
            port=self.port, controller_port=self._controller_port, data_dir=self._data
        )
        self._settings_path.write_text(settings)
        cluster_id = (
            "Z2lyLWxvb3BiYWNrLTAwMQ"  # Any 16 bytes in URL-safe base64; each data folder has its own server.
        )
        tool = ["kafka.tools.StorageTool", "format", "--standalone", "-t", cluster_id]
        done = subprocess.run(
            [*self._java, *tool, "-c", str(self._settings_path)],
            capture_output=True,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise PartFailedError(
                f"kafka: its data folder could not be formatted:\n{done.stdout}{done.stderr}"
            )
