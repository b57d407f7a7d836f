//! The words of the dashboard, one table a page. A row is: name, English, Portuguese, Spanish.

macro_rules! tables {
    ($($file:ident: $table:ident;)*) => {
        $(mod $file; pub(crate) use $file::$table;)*

        /// Every table, for tests.
        #[cfg(test)]
        const TABLES: &[&[(&str, [&str; 3])]] = &[$($table::ROWS,)*];
    };
}

tables! {
    common: Common;
    dead_letters: DeadLetters;
    event: EventWords;
    destinations: Destinations;
    edit: Edit;
    events: Events;
    failures: Failures;
    keys: Keys;
    live: Live;
    login: Login;
    messages: Messages;
    overview: Overview;
    replays: Replays;
    requests: Requests;
    routes: Routes;
    settings: Settings;
    told: Told;
    sources: Sources;
}

#[cfg(test)]
mod tests {
    use super::TABLES;

    #[test]
    fn every_text_has_the_same_places_in_all_languages_and_none_is_empty() {
        for (word, texts) in TABLES.iter().flat_map(|table| table.iter()) {
            let places = texts.map(|text| text.matches("{}").count());
            assert!(places.iter().all(|count| *count == places[0]), "{word}: {texts:?}");
            assert!(texts.iter().all(|text| !text.trim().is_empty()), "{word} is empty");
        }
    }
}
