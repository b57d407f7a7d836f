//! Other screens, other tastes and a network that fails.

use serde_json::json;

use super::Browser;

/// What a person asked the system for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ColorScheme {
    Light,
    Dark,
}

impl ColorScheme {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// Up to this width, in pixels, the screen is that of a telephone.
const TELEPHONE: u32 = 600;

impl Browser {
    /// Makes the page exactly so wide and high; a window of a browser would not become that narrow.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width <= TELEPHONE,
        });
        self.cdp("Emulation.setDeviceMetricsOverride", screen).await;
    }

    /// Answers `prefers-color-scheme`. Nothing moves either, so that pictures are the same each time.
    pub(crate) async fn set_color_scheme(&self, scheme: ColorScheme) {
        let features = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme.name() },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]});
        self.cdp("Emulation.setEmulatedMedia", features).await;
    }

    /// Cuts the browser off from the network, or lets it back.
    pub(crate) async fn set_offline(&self, is_offline: bool) {
        self.cdp("Network.enable", json!({})).await;
        let network = json!({
            "offline": is_offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1,
        });
        self.cdp("Network.emulateNetworkConditions", network).await;
    }
}
