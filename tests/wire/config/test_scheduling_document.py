"""The shape of the document: the field's spelling of every field, and nothing beside it."""

import pytest
from pydantic import ValidationError

from services.wire.config.scheduling_document import Document

HEAD = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}


def test_the_fields_spelling_is_read() -> None:
    found = Document.model_validate(
        HEAD
        | {
            "featureGates": ["flowControl"],
            "plugins": [{"type": "t", "name": "n", "parameters": {"a": 1}}],
            "schedulingProfiles": [{"name": "p", "plugins": [{"pluginRef": "n", "weight": 2.0}]}],
            "dataLayer": {
                "injectDefaults": False,
                "sources": [{"pluginRef": "s", "extractors": [{"pluginRef": "e"}]}],
            },
            "flowControl": {"defaultRequestTTL": "1s", "noEndpointRequestTTL": "2s"},
            "requestHandler": {"parsers": [{"pluginRef": "q"}]},
        },
        by_alias=True,
        by_name=False,
    )
    assert found.scheduling_profiles[0].plugins[0].plugin_ref == "n"
    assert found.flow_control is not None
    assert (found.flow_control.default_request_ttl, found.flow_control.no_endpoint_request_ttl) == (
        "1s",
        "2s",
    )
    assert found.data_layer is not None
    assert found.data_layer.sources[0].extractors[0].plugin_ref == "e"


@pytest.mark.parametrize("path", ["dataLayer", "flowControl", "requestHandler"])
def test_unknown_fields_are_refused_at_every_depth(path: str) -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        Document.model_validate(HEAD | {path: {"warp": 1}}, by_alias=True, by_name=False)
