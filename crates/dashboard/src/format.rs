//! Formatting of statuses, durations, sizes and phone numbers.

use std::time::Duration;

use surehook_core::delivery::state::DeliveryStatus;

use crate::{lang::Lang, translations::CommonTexts};

/// A status pill. Color, icon and text all carry the status, so that none of them is needed alone.
#[derive(Clone, Debug)]
pub(crate) struct Badge {
    pub(crate) tone: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) text: String,
}

impl Badge {
    pub(crate) fn new(tone: &'static str, icon: &'static str, text: impl Into<String>) -> Self {
        Self { tone, icon, text: text.into() }
    }

    pub(crate) fn status(status: DeliveryStatus, c: &CommonTexts) -> Self {
        match status {
            DeliveryStatus::Succeeded => Self::new("ok", "check", c.succeeded),
            DeliveryStatus::Scheduled => Self::new("warn", "clock", c.scheduled),
            DeliveryStatus::Dead => Self::new("bad", "cross", c.dead),
            DeliveryStatus::Held => Self::new("held", "pause", c.held),
            DeliveryStatus::Pending => Self::new("", "clock", c.pending),
            DeliveryStatus::InFlight => Self::new("", "pulse", c.in_flight),
            DeliveryStatus::Cancelled => Self::new("", "cross", c.cancelled),
            DeliveryStatus::Replayed => Self::new("", "replay", c.replayed),
        }
    }
}

/// A duration in its largest useful unit: `850 ms`, `2.4 s`, `3 min`, `5 h`, `2 d`.
pub(crate) fn format_duration(lang: Lang, duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..=9 => format!("{} s", lang.decimal(duration.as_secs_f64(), 1)),
        10..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

pub(crate) fn format_size(lang: Lang, bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = UNITS.into_iter().find(|(_, unit)| bytes >= *unit);
    match unit {
        #[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
        Some((name, unit)) => format!("{} {name}", lang.decimal(bytes as f64 / unit as f64, 1)),
        None => format!("{bytes} B"),
    }
}

/// The first `chars` characters, with an ellipsis if there are more.
pub(crate) fn truncate(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Masks the middle of a phone number or another personal address.
pub(crate) fn mask_middle(address: &str) -> String {
    let chars: Vec<char> = address.chars().collect();
    if chars.len() <= 4 {
        return "•".repeat(chars.len());
    }
    let (head, tail) = if chars.len() >= 8 { (4, 2) } else { (1, 1) };
    let hidden = "•".repeat((chars.len() - head - tail).min(8));
    let head: String = chars[..head].iter().collect();
    let tail: String = chars[chars.len() - tail..].iter().collect();
    format!("{head}{hidden}{tail}")
}

/// This many digits in a row may be a phone number.
const PHONE_DIGITS_MIN: usize = 8;
/// Suffixes of personal `WhatsApp` addresses.
const WHATSAPP_SUFFIXES: [&str; 3] = ["@s.whatsapp.net", "@c.us", "@lid"];

/// Masks phone numbers in a text. Dedup keys often contain them.
pub(crate) fn mask_phones(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        masked.push_str(&rest[..start]);
        let (digits, after) = split_digits(&rest[start..]);
        if digits.len() >= PHONE_DIGITS_MIN || is_whatsapp_suffix(after) {
            masked.push_str(&mask_middle(digits));
        } else {
            masked.push_str(digits);
        }
        rest = after;
    }
    masked.push_str(rest);
    masked
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Whether the digits before this text are a `WhatsApp` address; a device number may come between.
fn is_whatsapp_suffix(after: &str) -> bool {
    let domain = match after.strip_prefix([':', '.', '_']) {
        Some(device) => split_digits(device).1,
        None => after,
    };
    WHATSAPP_SUFFIXES.iter().any(|suffix| domain.starts_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_use_the_largest_useful_unit() {
        for (millis, expected) in [
            (0, "0 ms"),
            (850, "850 ms"),
            (2_440, "2.4 s"),
            (59_000, "59 s"),
            (180_000, "3 min"),
            (18_000_000, "5 h"),
            (200_000_000, "2 d"),
        ] {
            assert_eq!(format_duration(Lang::En, Duration::from_millis(millis)), expected);
        }
        assert_eq!(format_duration(Lang::Pt, Duration::from_millis(2_440)), "2,4 s");
    }

    #[test]
    fn sizes_use_binary_units() {
        for (bytes, expected) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB")]
        {
            assert_eq!(format_size(Lang::En, bytes), expected);
        }
    }

    #[test]
    fn phone_numbers_in_texts_are_masked() {
        for (text, expected) in [
            ("5511987654321", "5511•••••••21"),
            ("+5511987654321", "+5511•••••••21"),
            ("m:5511987654321@s.whatsapp.net:3EB0", "m:5511•••••••21@s.whatsapp.net:3EB0"),
            ("5511987654321:12@s.whatsapp.net", "5511•••••••21:••@s.whatsapp.net"),
            ("1234567@lid", "1•••••7@lid"),
            ("a-12345678-b-87654321", "a-1234••78-b-8765••21"),
            ("order-1234567", "order-1234567"),
            ("wamid.1", "wamid.1"),
            ("olá 9", "olá 9"),
            ("", ""),
        ] {
            assert_eq!(mask_phones(text), expected, "case: {text}");
        }
    }

    #[test]
    fn middle_of_personal_address_is_masked() {
        for (address, expected) in [
            ("5511987654321", "5511•••••••21"),
            ("12345", "1•••5"),
            ("1234", "••••"),
            ("", ""),
            ("joão@example.com", "joão••••••••om"),
        ] {
            assert_eq!(mask_middle(address), expected, "case: {address}");
        }
    }
}
