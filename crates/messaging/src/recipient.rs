//! The recipient of a message, parsed from the formats that people use.

use surehook_webhooks::attribute::contact_address;

/// Length of a phone number with country code (E.164).
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 6..=15;
/// Server part of a group address.
const GROUP_SERVER: &str = "g.us";
/// Server parts of hidden numbers, newsletters and broadcast lists.
const OTHER_SERVERS: [&str; 3] = ["lid", "newsletter", "broadcast"];
/// Server part of a phone number address.
const PHONE_SERVER: &str = "s.whatsapp.net";
/// Longest recipient, in bytes.
const BYTES_MAX: usize = 255;
/// Shortest group id of the Cloud API. Known ids have 50 characters or more.
const GROUP_ID_BYTES_MIN: usize = 20;

/// The recipient of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Recipient {
    /// Phone number with country code, digits only.
    Phone(String),
    /// Group address of the apps: `…@g.us`.
    Group(String),
    /// Group id of the Cloud API, opaque.
    GroupId(String),
    /// Business-scoped user id of a user with a hidden phone number, such as `BR.1502576394655843`.
    BusinessScoped(String),
    /// Other address: `…@lid`, `…@newsletter`, `…@broadcast`.
    Other(String),
}

impl Recipient {
    /// Parses a recipient; `None` if the text is not a valid address.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.len() > BYTES_MAX {
            return None;
        }
        if let Some(digits) = contact_address::parse_phone(text) {
            return PHONE_DIGITS.contains(&digits.len()).then(|| Self::Phone(digits.into_owned()));
        }
        if let Some((user, server)) = text.rsplit_once('@') {
            return Self::from_address(user, server);
        }
        if is_business_scoped(text) {
            return Some(Self::BusinessScoped(text.to_owned()));
        }
        let is_id_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_-=".contains(&byte);
        let is_group_id = text.len() >= GROUP_ID_BYTES_MIN && text.bytes().all(is_id_byte);
        is_group_id.then(|| Self::GroupId(text.to_owned()))
    }

    fn from_address(user: &str, server: &str) -> Option<Self> {
        let is_user_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if user.is_empty() || !user.bytes().all(is_user_byte) {
            return None;
        }
        let server = server.to_ascii_lowercase();
        let address = format!("{user}@{server}");
        if server == GROUP_SERVER {
            return Some(Self::Group(address));
        }
        OTHER_SERVERS.contains(&server.as_str()).then_some(Self::Other(address))
    }

    /// The normalized address, for pacing and ordering: the same for every spelling of a recipient.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Phone(text)
            | Self::Group(text)
            | Self::GroupId(text)
            | Self::BusinessScoped(text)
            | Self::Other(text) => text,
        }
    }

    pub fn is_group(&self) -> bool {
        matches!(self, Self::Group(_) | Self::GroupId(_))
    }

    /// The WhatsApp address (JID), if there is one.
    pub(super) fn jid(&self) -> Option<String> {
        match self {
            Self::Phone(digits) => Some(format!("{digits}@{PHONE_SERVER}")),
            Self::Group(address) | Self::Other(address) => Some(address.clone()),
            Self::GroupId(_) | Self::BusinessScoped(_) => None,
        }
    }
}

/// Country code and id, optionally with `ENT`: `BR.1502576394655843`, `US.ENT.11815…`.
fn is_business_scoped(text: &str) -> bool {
    let Some((country, id)) = text.split_once('.') else { return false };
    let id = id.strip_prefix("ENT.").unwrap_or(id);
    country.len() == 2
        && country.bytes().all(|byte| byte.is_ascii_uppercase())
        && !id.is_empty()
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipient_is_parsed_from_many_formats() {
        let phone = || Some(Recipient::Phone("5511987654321".to_owned()));
        let other = |text: &str| Some(Recipient::Other(text.to_owned()));
        let scoped = |text: &str| Some(Recipient::BusinessScoped(text.to_owned()));
        let group = "120363404694233820@g.us";
        let group_id = "Y2FwaV9ncm91cDoxNzA1NTU1MDEzOToxMjAzNjM0MDQ2OTQyMzM4MjAZD";
        let cases = [
            ("5511987654321", phone()),
            (" +55 (11) 98765-4321 ", phone()),
            ("005511987654321", phone()),
            ("tel:+55-11-98765-4321", phone()),
            ("whatsapp:+5511987654321", phone()),
            ("5511987654321@s.whatsapp.net", phone()),
            ("5511987654321:12@s.whatsapp.net", phone()),
            ("5511987654321@c.us", phone()),
            (group, Some(Recipient::Group(group.to_owned()))),
            ("120363404694233820@G.US", Some(Recipient::Group(group.to_owned()))),
            ("5511987654321-1599999999@g.us", Recipient::parse("5511987654321-1599999999@g.us")),
            (group_id, Some(Recipient::GroupId(group_id.to_owned()))),
            ("BR.1502576394655843", scoped("BR.1502576394655843")),
            ("US.ENT.11815799212886844830", scoped("US.ENT.11815799212886844830")),
            ("148438822404248@lid", other("148438822404248@lid")),
            ("120363144038483540@newsletter", other("120363144038483540@newsletter")),
            ("status@broadcast", other("status@broadcast")),
            // Digits of a group without its server: too long for a phone number.
            ("120363404694233820", None),
            ("12345", None),
            ("maria", None),
            ("maria@example.com", None),
            ("a b@g.us", None),
            ("@g.us", None),
            ("br.1502576394655843", None),
            ("BR.", None),
            ("+", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Recipient::parse(text), expected, "case: {text}");
        }
    }
}
