"""Where the rules of the contract and those of `compat: artemis` (section 13) differ."""

from ringfaust.core.policy.artemis import ArtemisPolicy
from ringfaust.core.policy.default import DefaultPolicy

POLICIES: dict[str, DefaultPolicy] = {"default": DefaultPolicy(), "artemis": ArtemisPolicy()}
"""By the setting `compat` of a queue or an address."""
