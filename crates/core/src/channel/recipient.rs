//! Who gets a message, in the forms in which people write it.

use crate::attribute::address;

/// Fewest and most digits of a phone number with its country (E.164).
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 6..=15;
/// The part after the `@` of a group's address.
const GROUP_SERVER: &str = "g.us";
/// The same of one that hides a phone number, of a channel and of a list.
const OTHER_SERVERS: [&str; 3] = ["lid", "newsletter", "broadcast"];
/// The part after the `@` of an address that is a phone number.
const PHONE_SERVER: &str = "s.whatsapp.net";
/// The longest text that is looked at.
const BYTES_MAX: usize = 255;
/// The shortest id of a group of the Cloud API. Those that are known have 50 characters and more.
const GROUP_ID_BYTES_MIN: usize = 20;

/// Who gets a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Recipient {
    /// A phone number with its country, digits only.
    Phone(String),
    /// A group as the apps know it: `…@g.us`.
    Group(String),
    /// A group as the Cloud API knows it: an id without a meaning.
    GroupId(String),
    /// A user without a phone number that we could see: a BSUID such as `BR.1502576394655843`.
    BusinessScoped(String),
    /// Another address: `…@lid`, `…@newsletter`, `…@broadcast`.
    Other(String),
}

impl Recipient {
    /// Reads what a person wrote; `None` if it is nobody's address.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.len() > BYTES_MAX {
            return None;
        }
        if let Some(digits) = address::phone(text) {
            return PHONE_DIGITS.contains(&digits.len()).then(|| Self::Phone(digits.into_owned()));
        }
        if let Some((user, server)) = text.rsplit_once('@') {
            return Self::from_address(user, server);
        }
        if is_business_scoped(text) {
            return Some(Self::BusinessScoped(text.to_owned()));
        }
        let is_id = |byte: u8| byte.is_ascii_alphanumeric() || b"_-=".contains(&byte);
        let is_group_id = text.len() >= GROUP_ID_BYTES_MIN && text.bytes().all(is_id);
        is_group_id.then(|| Self::GroupId(text.to_owned()))
    }

    fn from_address(user: &str, server: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if user.is_empty() || !user.bytes().all(is_plain) {
            return None;
        }
        let server = server.to_ascii_lowercase();
        let address = format!("{user}@{server}");
        if server == GROUP_SERVER {
            return Some(Self::Group(address));
        }
        OTHER_SERVERS.contains(&server.as_str()).then_some(Self::Other(address))
    }

    /// The address as it was meant, for pacing and for ordering: one recipient has one.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Phone(text)
            | Self::Group(text)
            | Self::GroupId(text)
            | Self::BusinessScoped(text)
            | Self::Other(text) => text,
        }
    }

    /// Whether it is a group.
    pub fn is_group(&self) -> bool {
        matches!(self, Self::Group(_) | Self::GroupId(_))
    }

    /// The address within WhatsApp's own network, if it has one.
    pub(super) fn jid(&self) -> Option<String> {
        match self {
            Self::Phone(digits) => Some(format!("{digits}@{PHONE_SERVER}")),
            Self::Group(address) | Self::Other(address) => Some(address.clone()),
            Self::GroupId(_) | Self::BusinessScoped(_) => None,
        }
    }
}

/// Two letters of a country and an id, or `ENT` and an id: `BR.1502576394655843`, `US.ENT.11815…`.
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
    fn people_write_the_same_recipient_in_many_ways() {
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
            // The digits of a group without its server: too many for a phone number.
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
