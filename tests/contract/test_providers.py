"""Every memory provider keeps the same promises."""

from wellkept.providers.holographic import HolographicProvider
from wellkept.testing.provider_contract import ProviderContract, RecordingProvider


class TestHolographic(ProviderContract):
    def provider(self):
        return HolographicProvider()

    def known(self, provider, text):
        return provider._store.find(text) is not None


class TestRecording(ProviderContract):
    """The double that other tests rely on is itself a provider."""

    mirrors = False

    def provider(self):
        return RecordingProvider()
