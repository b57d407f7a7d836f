//! The words of the dashboard, one table a page. A row is: name, English, Portuguese, Spanish.

mod common;
mod events;
mod login;
mod messages;
mod overview;
mod settings;

pub(crate) use common::Common;
pub(crate) use events::Events;
pub(crate) use login::Login;
pub(crate) use messages::Messages;
pub(crate) use overview::Overview;
pub(crate) use settings::Settings;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_has_the_same_places_in_all_languages_and_none_is_empty() {
        let tables = [
            Common::ROWS,
            Events::ROWS,
            Login::ROWS,
            Messages::ROWS,
            Overview::ROWS,
            Settings::ROWS,
        ];
        for (word, texts) in tables.iter().flat_map(|table| table.iter()) {
            let places = texts.map(|text| text.matches("{}").count());
            assert!(places.iter().all(|count| *count == places[0]), "{word}: {texts:?}");
            assert!(texts.iter().all(|text| !text.trim().is_empty()), "{word} is empty");
        }
    }
}
