//! Formats the phases of an attempt.

use serde_json::Value;

/// The known phases in milliseconds, such as `dns 3, connect 12, tls 20, first byte 41`.
pub(super) fn format_phases(timing: &Value) -> String {
    let phases = [
        ("dns", "dns_ms"),
        ("connect", "connect_ms"),
        ("tls", "tls_ms"),
        ("first byte", "first_byte_ms"),
    ];
    let mut parts: Vec<String> = phases
        .iter()
        .filter_map(|(word, name)| Some(format!("{word} {}", timing[*name].as_u64()?)))
        .collect();
    if timing["reused_connection"] == true {
        parts.insert(0, "reused".to_owned());
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_phases_are_omitted() {
        let fresh = json!({ "dns_ms": 3, "connect_ms": 0, "tls_ms": null, "first_byte_ms": 41 });
        assert_eq!(format_phases(&fresh), "dns 3, connect 0, first byte 41");
        let reused = json!({ "first_byte_ms": 5, "reused_connection": true });
        assert_eq!(format_phases(&reused), "reused, first byte 5");
        assert_eq!(format_phases(&Value::Null), "");
    }
}
