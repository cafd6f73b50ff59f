"""Calls of the Kubernetes API as plain JSON: get, list, watch, write. The only file that knows the client library.

`kubernetes_asyncio` brings credentials (in-cluster tokens that rotate, kubeconfig with its plugins) and the TLS
transport; its models and its watch helper are not used, because what is read here is a dozen fields and a watch
must tell "ended" from "too old". Which objects are asked for is the other files' business.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from services.adapters.ports import AdapterError, UnreachableError

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

CALL_TIMEOUT_S = 10.0
"""A list of a thousand pods takes well under a second; a server that needs longer is as good as away."""
CONNECT_TIMEOUT_S = 5.0
PAGE = 500
"""Objects per page of a list, the field's usual size: a page of pods stays below a few megabytes."""
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
IN_CLUSTER_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Object = Mapping[str, Any]


class ApiStatusError(AdapterError):
    """The API server answered and refused; `code` is its HTTP status (404, 409, 410, 403, ...)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object in one namespace; `group` is empty for the core API. Selectors narrow lists and watches."""

    group: str
    version: str
    plural: str
    namespace: str
    labels: str = ""
    fields: str = ""

    @property
    def path(self) -> str:
        """The URL path of the collection."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/namespaces/{self.namespace}/{self.plural}"

    @property
    def selectors(self) -> list[tuple[str, str]]:
        """The query of a list or watch."""
        both = (("labelSelector", self.labels), ("fieldSelector", self.fields))
        return [(name, value) for name, value in both if value]


class KubernetesApi:
    """One API server under one identity. Methods raise `UnreachableError` or `ApiStatusError`.

    Access is by `kubeconfig`, or by the pod's own service account where none is given. It is looked for at the
    first call, so that credentials which come late are waited for like a server that does.
    """

    def __init__(self, kubeconfig: Path | None = None, context: str = "") -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._client: ApiClient | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> "ApiClient":
        """Look for access now; raises `UnreachableError` naming what is missing: no such file or context, no pod."""
        # Generated models make this import take most of a second, which only a picker on Kubernetes should pay.
        from kubernetes_asyncio import client, config  # noqa: PLC0415

        async with self._opening:
            if self._client is None:
                configuration = client.Configuration()
                try:
                    if self._kubeconfig is None:
                        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # Typed nowhere.
                    else:
                        await config.load_kube_config(
                            config_file=str(self._kubeconfig),
                            context=self._context or None,
                            client_configuration=configuration,
                        )
                except (config.ConfigException, OSError) as error:
                    raise UnreachableError(f"no access to Kubernetes: {_reason(error)}") from None
                self._client = client.ApiClient(configuration)
            return self._client

    async def get(self, path: str, query: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Return one object or one page."""
        return await self._call("GET", path, query=query)

    async def list(self, resource: Resource) -> tuple[list[dict[str, Any]], str]:
        """Return all objects and the resource version at which they were all there."""
        items: list[dict[str, Any]] = []
        going_on = ""
        while True:
            query = [*resource.selectors, ("limit", str(PAGE))]
            page = await self.get(resource.path, [*query, ("continue", going_on)] if going_on else query)
            items += page.get("items") or ()
            going_on = page["metadata"].get("continue") or ""
            if not going_on:
                return items, str(page["metadata"]["resourceVersion"])

    async def watch(
        self, resource: Resource, version: str, span_s: int, silence_s: float
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield events after `version` until the server ends the watch, about `span_s` from now.

        A connection that says nothing for `silence_s` longer than that is dead: no end of a watch came.
        """
        query = [
            *resource.selectors,
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(span_s)),
        ]
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=span_s + silence_s
        )
        try:
            response = await self._send("GET", resource.path, query, None, JSON, timeout)
            try:
                await _refuse_failure(response, resource.path)
                while line := await response.content.readline():
                    yield orjson.loads(line)
            finally:
                # What has not been read is of no use, and a connection in the middle of it neither.
                response.close()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise UnreachableError(f"watch of {resource.path} broke: {_reason(error)}") from None

    async def create(self, path: str, body: Object) -> dict[str, Any]:
        """Create an object in the collection at `path`."""
        return await self._call("POST", path, body)

    async def replace(self, path: str, body: Object) -> dict[str, Any]:
        """Replace an object; 409 when its resource version is no longer the newest."""
        return await self._call("PUT", path, body)

    async def patch(self, path: str, body: Object) -> dict[str, Any]:
        """Merge `body` into an object (RFC 7396)."""
        return await self._call("PATCH", path, body, content_type=MERGE_PATCH)

    async def close(self) -> None:
        """Close every connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _call(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Sequence[tuple[str, str]] = (),
        content_type: str = JSON,
    ) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT_S)
        try:
            async with await self._send(method, path, query, body, content_type, timeout) as response:
                await _refuse_failure(response, path)
                answer = orjson.loads(await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise UnreachableError(f"{method} {path}: {_reason(error)}") from None
        if not isinstance(answer, dict):
            raise UnreachableError(f"{method} {path}: the answer is no object")
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        body: Object | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        client = self._client or await self.open()
        response: aiohttp.ClientResponse = await client.call_api(
            path,
            method,
            query_params=[*query],
            header_params={"Accept": JSON, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=timeout,
            _return_http_data_only=True,
        )
        return response


async def _refuse_failure(response: aiohttp.ClientResponse, path: str) -> None:
    if response.status < 300:
        return
    text = await response.read()
    try:
        status = orjson.loads(text)
        message = str(status["message"])
    except (ValueError, KeyError, TypeError):
        message = text[:200].decode(errors="replace")
    raise ApiStatusError(response.status, f"{path}: {response.status} {message}")


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def own_namespace() -> str:
    """Return the namespace of the pod this runs in, empty outside of one."""
    try:
        return IN_CLUSTER_NAMESPACE.read_text().strip()
    except OSError:
        return ""
