//! Names of secret fields: the one list for bodies, headers and queries.

use std::fmt::Write as _;

/// Maximum number of additional names of a source.
pub const EXTRA_NAMES_MAX: usize = 64;
/// Maximum length of an additional name.
pub const NAME_BYTES_MAX: usize = 128;

/// Names with these endings are secret, such as `instanceToken` or `X-Api-Key`.
const ENDINGS: [&str; 16] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "signingkey",
    "jwt",
    "cardnumber",
    "cvv",
    "cvc",
    "cvv2",
    "securitycode",
];

/// Names that are secret only as an exact match.
const EXACT_NAMES: [&str; 31] = [
    "authorization",
    "proxyauthorization",
    "bearer",
    "cookie",
    "cookies",
    "setcookie",
    "credential",
    "credentials",
    "otp",
    "passcode",
    "pwd",
    "tokens",
    "accesstokens",
    "refreshtokens",
    "secrets",
    "passwords",
    "apikeys",
    "pan",
    "cardno",
    "cardnum",
    "cardcode",
    "cardpin",
    "ccnumber",
    "ccnum",
    "cvc2",
    "csc",
    "primaryaccountnumber",
    "cardverificationvalue",
    "pinblock",
    "track1data",
    "track2data",
];

/// Harmless names with a secret ending: pagination and idempotency tokens.
const HARMLESS: [&str; 5] =
    ["pagetoken", "nexttoken", "synctoken", "continuationtoken", "idempotencytoken"];

/// Headers and query parameters are few and often secret: these match anywhere in their names.
const PARAMETER_PARTS: [&str; 5] = ["token", "secret", "password", "apikey", "accesskey"];
/// Secret as header or parameter only; in a body these are common words.
const PARAMETERS: [&str; 2] = ["key", "auth"];

/// Names of secrets: the built-in ones and those added by a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretNames {
    fields: Vec<String>,
    headers: Vec<String>,
}

/// Why additional names are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretNamesSpecError {
    /// More than are allowed.
    #[error("too many names; at most {EXTRA_NAMES_MAX} are allowed")]
    TooMany,
    /// An entry is not a field name.
    #[error(
        "each entry must be a field name of 1 to {NAME_BYTES_MAX} bytes with a letter or digit; fields are found at any depth, so write `pin`, not a path"
    )]
    Name,
}

impl SecretNames {
    /// The built-in names only.
    pub const fn builtin() -> Self {
        Self { fields: Vec::new(), headers: Vec::new() }
    }

    /// Validates additional names.
    pub fn check(more: &[String]) -> Result<(), SecretNamesSpecError> {
        if more.len() > EXTRA_NAMES_MAX {
            return Err(SecretNamesSpecError::TooMany);
        }
        let is_good = |name: &String| {
            name.len() <= NAME_BYTES_MAX
                && name.contains(char::is_alphanumeric)
                && !name.starts_with(['/', '.'])
        };
        if more.iter().all(is_good) { Ok(()) } else { Err(SecretNamesSpecError::Name) }
    }

    /// Adds names of fields, headers and parameters.
    pub fn add_fields<'n>(&mut self, more: impl IntoIterator<Item = &'n String>) {
        self.fields.extend(more.into_iter().map(|name| normalize(name)));
        self.fields.sort_unstable();
        self.fields.dedup();
    }

    /// Adds the name of a header.
    pub fn add_header(&mut self, name: &str) {
        self.headers.push(name.to_ascii_lowercase());
    }

    /// Whether a field, header or parameter of this name holds a secret.
    pub fn is_secret_field(&self, name: &str) -> bool {
        self.is_secret_normalized(&normalize(name))
    }

    fn is_secret_normalized(&self, normalized: &str) -> bool {
        self.fields.iter().any(|more| more == normalized)
            || !is_harmless(normalized)
                && (ENDINGS.iter().any(|ending| normalized.ends_with(ending))
                    || EXACT_NAMES.contains(&normalized))
    }

    /// Whether the value of this header or query parameter is a secret. A signature is not: it gives
    /// access to nothing else.
    pub fn is_secret_parameter(&self, name: &str) -> bool {
        let normalized = normalize(name);
        self.headers.iter().any(|header| header.eq_ignore_ascii_case(name))
            || self.is_secret_normalized(&normalized)
            || PARAMETERS.contains(&normalized.as_str())
            || !is_harmless(&normalized)
                && PARAMETER_PARTS.iter().any(|part| normalized.contains(part))
    }
}

fn is_harmless(normalized: &str) -> bool {
    HARMLESS.iter().any(|ending| normalized.ends_with(ending))
}

/// Whether an object of this name is a payment card.
pub(super) fn is_card(name: &str) -> bool {
    let normalized = normalize(name);
    normalized.ends_with("card") || normalized.ends_with("cards")
}

/// Whether a field of a card may be its number.
pub(super) fn is_card_number_name(name: &str) -> bool {
    matches!(normalize(name).as_str(), "number" | "num" | "no")
}

/// Whether a text looks like the number of a card.
pub(super) fn is_card_number(text: &[u8]) -> bool {
    let digits = text.iter().filter(|byte| byte.is_ascii_digit()).count();
    (12..=19).contains(&digits)
        && text.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b' ' | b'-'))
}

/// Normalizes a name for comparison: `api_key`, `Api-Key` and `apiKey` are equal.
fn normalize(name: &str) -> String {
    let mut normalized = String::with_capacity(name.len());
    for letter in name.chars() {
        if letter.is_ascii() {
            if !matches!(letter, '-' | '_' | '.' | ' ') {
                normalized.push(letter.to_ascii_lowercase());
            }
        } else {
            // Writing to a String cannot fail.
            let _always = write!(normalized, "{}", letter.to_lowercase());
        }
    }
    normalized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_match_in_any_spelling() {
        let names = SecretNames::builtin();
        for secret in [
            "apikey",
            "api_key",
            "API-KEY",
            "apiKey",
            "x-api-key",
            "instanceToken",
            "instance_token",
            "token",
            "access_token",
            "refreshToken",
            "id_token",
            "auth_token",
            "pubsub_token",
            "hub.verify_token",
            "client_secret",
            "secret",
            "password",
            "Authorization",
            "Set-Cookie",
            "jwt",
            "card_number",
            "creditCardNumber",
            "pan",
            "CVV",
            "cvc",
            "cvv2",
            "security_code",
            "card_cvv",
        ] {
            assert!(names.is_secret_field(secret), "case: {secret}");
            assert!(names.is_secret_parameter(secret), "case: {secret}");
        }
        for plain in [
            "key",
            "mediaKey",
            "id",
            "number",
            "token_type",
            "tokenized",
            "total_tokens",
            "max_tokens",
            "next_page_token",
            "nextSyncToken",
            "i-twilio-idempotency-token",
            "cvc_check",
            "company",
            "secretary",
            "authorizations",
            "signature",
            "japan",
            "",
        ] {
            assert!(!names.is_secret_field(plain), "case: {plain}");
        }
        for parameter in ["key", "auth", "x-token-id", "secret-version"] {
            assert!(names.is_secret_parameter(parameter), "case: {parameter}");
        }
        for shown in ["keys", "page_token", "x-hub-signature-256", "webhook-id"] {
            assert!(!names.is_secret_parameter(shown), "case: {shown}");
        }
    }

    #[test]
    fn source_can_add_secret_names() {
        let mut names = SecretNames::builtin();
        names.add_fields(&["Número-CPF".to_owned(), "pin".to_owned()]);
        names.add_header("X-Gate");
        assert!(
            names.is_secret_field("NÚMERO_cpf")
                && names.is_secret_field("Pin")
                && names.is_secret_parameter("pin")
        );
        assert!(!names.is_secret_field("pins") && !names.is_secret_field("x-gate"));
        assert!(names.is_secret_parameter("x-gate") && !names.is_secret_parameter("xgate"));
    }

    #[test]
    fn additional_names_are_validated() {
        let written = |text: &str| vec![text.to_owned()];
        for (names, expected) in [
            (Vec::new(), Ok(())),
            (written("cpf"), Ok(())),
            (written(""), Err(SecretNamesSpecError::Name)),
            (written("--"), Err(SecretNamesSpecError::Name)),
            (written("/data/cpf"), Err(SecretNamesSpecError::Name)),
            (written(".data.cpf"), Err(SecretNamesSpecError::Name)),
            (written(&"a".repeat(129)), Err(SecretNamesSpecError::Name)),
            (vec!["a".to_owned(); 65], Err(SecretNamesSpecError::TooMany)),
        ] {
            assert_eq!(SecretNames::check(&names), expected, "case: {names:?}");
        }
    }

    #[test]
    fn card_number_has_12_to_19_digits() {
        for (text, expected) in [
            ("4242424242424242", true),
            ("4242 4242-4242 4242", true),
            ("424242424242", true),
            ("42424242424", false),
            ("42424242424242424242", false),
            ("4242", false),
            ("************4242", false),
            ("", false),
        ] {
            assert_eq!(is_card_number(text.as_bytes()), expected, "case: {text}");
        }
    }
}
