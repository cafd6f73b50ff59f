"""Strategies by name: the profiles that every picker of the field has, to choose or to compare with.

SageMaker's spellings mean the same. `prefix-aware` is the default profile.
"""

from collections.abc import Mapping

from services.core.scheduling.profile import ENDPOINTS, Picker, SchedulingProfile, endpoint_profile

STRATEGIES: Mapping[str, SchedulingProfile] = {
    "random": endpoint_profile(Picker.RANDOM),
    "round-robin": endpoint_profile(Picker.ROUND_ROBIN),
    "least-outstanding": endpoint_profile(Picker.LEAST_OUTSTANDING),
    "prefix-aware": ENDPOINTS,
}
SAGEMAKER: Mapping[str, str] = {
    "RANDOM": "random",
    "ROUND_ROBIN": "round-robin",
    "LEAST_OUTSTANDING_REQUESTS": "least-outstanding",
    "PREFIX_AWARE": "prefix-aware",
}


def strategy(name: str) -> SchedulingProfile:
    """Return the profile of a strategy in either spelling; raises `ValueError` with the rule."""
    profile = STRATEGIES.get(SAGEMAKER.get(name, name))
    if profile is None:
        raise ValueError(f"strategy {name!r}: must be one of {', '.join((*STRATEGIES, *SAGEMAKER))}")
    return profile
