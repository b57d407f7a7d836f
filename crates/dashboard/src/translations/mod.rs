//! The texts of the dashboard, one table per page. A row is: name, English, Portuguese, Spanish.

macro_rules! tables {
    ($($file:ident: $table:ident;)*) => {
        $(mod $file; pub(crate) use $file::$table;)*

        #[cfg(test)]
        const TABLES: &[&[(&str, [&str; 3])]] = &[$($table::ROWS,)*];
    };
}

tables! {
    alerts: AlertTexts;
    common: CommonTexts;
    dead_letters: DeadLetterTexts;
    destinations: DestinationTexts;
    event: EventTexts;
    events: EventListTexts;
    failures: FailureTexts;
    forms: FormTexts;
    health: HealthTexts;
    idempotency: IdempotencyTexts;
    live: LiveTexts;
    login: LoginTexts;
    messages: MessageTexts;
    nodes: NodeTexts;
    overview: OverviewTexts;
    replays: ReplayTexts;
    requests: RequestTexts;
    routes: RouteTexts;
    settings: SettingsTexts;
    shortcuts: ShortcutTexts;
    sources: SourceTexts;
    timeline: TimelineTexts;
    what_if: WhatIfTexts;
}

#[cfg(test)]
mod tests {
    use super::TABLES;

    #[test]
    fn every_text_is_filled_and_has_the_same_placeholders_in_all_languages() {
        for (name, texts) in TABLES.iter().flat_map(|table| table.iter()) {
            let placeholders = texts.map(|text| text.matches("{}").count());
            assert!(
                placeholders.iter().all(|count| *count == placeholders[0]),
                "{name}: {texts:?}"
            );
            assert!(texts.iter().all(|text| !text.trim().is_empty()), "{name} is empty");
        }
    }
}
