//! The parties that receive the deliveries of a destination, and thus its secrets.

use http::Uri;
use serde_json::Value;

/// The receivers in the JSON form of a spec. Another path on the same origin is the same receiver.
pub fn receivers(spec: &Value) -> [Option<Value>; 5] {
    let at = |pointer: &str| spec.pointer(pointer).cloned();
    let origin = |pointer: &str| {
        let url = at(pointer)?;
        let parsed = url.as_str().and_then(|url| url.parse::<Uri>().ok());
        let origin = parsed.and_then(|url| {
            Some(format!("{}://{}", url.scheme_str()?, url.authority()?).to_ascii_lowercase())
        });
        // Anything that is not an absolute URL is compared as a whole.
        Some(origin.map_or(url, Value::from))
    };
    [
        at("/kind"),
        origin("/url"),
        at("/proxy"),
        at("/exec/command"),
        origin("/auth/oauth2/token_url"),
    ]
}
