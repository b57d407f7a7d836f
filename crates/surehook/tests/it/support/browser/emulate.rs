//! Emulates screen sizes, color schemes and a failing network.

use serde_json::json;

use super::Browser;

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

/// Up to this width in pixels, a phone is emulated.
const PHONE_WIDTH_MAX: u32 = 600;

impl Browser {
    /// Sets the viewport; a real window could not become as narrow as a phone.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width <= PHONE_WIDTH_MAX,
        });
        self.cdp("Emulation.setDeviceMetricsOverride", screen).await;
    }

    /// Sets `prefers-color-scheme`, and turns animations off so that screenshots are reproducible.
    pub(crate) async fn set_color_scheme(&self, scheme: ColorScheme) {
        let features = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme.name() },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]});
        self.cdp("Emulation.setEmulatedMedia", features).await;
    }

    /// Disconnects the browser from the network, or connects it again.
    pub(crate) async fn set_offline(&self, is_offline: bool) {
        self.cdp("Network.enable", json!({})).await;
        let network = json!({
            "offline": is_offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1,
        });
        self.cdp("Network.emulateNetworkConditions", network).await;
    }
}
