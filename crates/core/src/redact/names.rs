//! Which names stand for secrets. The one list for bodies, headers and queries.

use std::fmt::Write as _;

/// Further names that a source may have.
pub const EXTRA_NAMES_MAX: usize = 64;
/// The longest of them, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// A name that ends like this is a secret's, such as `instanceToken` or `X-Api-Key`.
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

/// And so is one of these.
const WHOLE: [&str; 31] = [
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

/// These end alike and open nothing: they say where a list goes on, or what is the same wish.
const HARMLESS: [&str; 5] =
    ["pagetoken", "nexttoken", "synctoken", "continuationtoken", "idempotencytoken"];

/// Headers and parameters are few, and secrets are common in them: they may also hold one of these.
const PARAMETER_PARTS: [&str; 5] = ["token", "secret", "password", "apikey", "accesskey"];
/// In a body these are everyday words, such as the key of a message.
const PARAMETERS: [&str; 2] = ["key", "auth"];

/// The names of what is secret, usual ones and those that somebody added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretNames {
    fields: Vec<String>,
    headers: Vec<String>,
}

/// Further names that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretNamesSpecError {
    /// There are too many.
    #[error("there may be at most {EXTRA_NAMES_MAX} names")]
    TooMany,
    /// One of them names nothing.
    #[error(
        "each is the name of a field, of 1 to {NAME_BYTES_MAX} bytes and with a letter or a digit; a field is found at any depth, so write `pin`, not a path to it"
    )]
    Name,
}

impl SecretNames {
    /// The usual ones alone.
    pub const fn builtin() -> Self {
        Self { fields: Vec::new(), headers: Vec::new() }
    }

    /// Whether people may write these names.
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

    /// Knows more names of fields, headers and parameters.
    pub fn add_fields<'n>(&mut self, more: impl IntoIterator<Item = &'n String>) {
        self.fields.extend(more.into_iter().map(|name| bare(name)));
        self.fields.sort_unstable();
        self.fields.dedup();
    }

    /// Knows one more header.
    pub fn add_header(&mut self, name: &str) {
        self.headers.push(name.to_ascii_lowercase());
    }

    /// Whether the value of this field of a body is a secret.
    pub fn is_secret_field(&self, name: &str) -> bool {
        self.is_bare_field(&bare(name))
    }

    fn is_bare_field(&self, bare: &str) -> bool {
        self.fields.iter().any(|more| more == bare)
            || !is_harmless(bare)
                && (ENDINGS.iter().any(|ending| bare.ends_with(ending)) || WHOLE.contains(&bare))
    }

    /// Whether the value of this header, or of this parameter of a query, is a secret. A signature is
    /// not: it opens nothing else.
    pub fn is_secret_parameter(&self, name: &str) -> bool {
        let bare = bare(name);
        self.headers.iter().any(|header| header.eq_ignore_ascii_case(name))
            || self.is_bare_field(&bare)
            || PARAMETERS.contains(&bare.as_str())
            || !is_harmless(&bare) && PARAMETER_PARTS.iter().any(|part| bare.contains(part))
    }
}

fn is_harmless(bare: &str) -> bool {
    HARMLESS.iter().any(|ending| bare.ends_with(ending))
}

/// Whether an object of this name is a payment card.
pub(super) fn is_card(name: &str) -> bool {
    let bare = bare(name);
    bare.ends_with("card") || bare.ends_with("cards")
}

/// Whether a field of a card may be its number.
pub(super) fn is_number(name: &str) -> bool {
    matches!(bare(name).as_str(), "number" | "num" | "no")
}

/// Whether a text looks like the number of a card.
pub(super) fn is_card_number(text: &[u8]) -> bool {
    let digits = text.iter().filter(|byte| byte.is_ascii_digit()).count();
    (12..=19).contains(&digits)
        && text.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b' ' | b'-'))
}

/// A name as it is compared: `api_key`, `Api-Key` and `apiKey` are one.
fn bare(name: &str) -> String {
    let mut bare = String::with_capacity(name.len());
    for letter in name.chars() {
        if letter.is_ascii() {
            if !matches!(letter, '-' | '_' | '.' | ' ') {
                bare.push(letter.to_ascii_lowercase());
            }
        } else {
            // Writing to a text cannot fail.
            let _always = write!(bare, "{}", letter.to_lowercase());
        }
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_however_they_are_spelled() {
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
    fn a_source_may_have_names_of_its_own() {
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
    fn further_names_have_bounds() {
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
    fn the_number_of_a_card_has_12_to_19_digits() {
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
