//! Languages, number formats and the macro for translation tables.
//!
//! Each table is a struct whose fields are texts, made by [`translations!`] from rows with one text for
//! each language. A text that is missing does not compile, and neither does a template that asks for
//! one that is not there.

use http::HeaderMap;

/// The languages of the dashboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lang {
    #[default]
    En,
    Pt,
    Es,
}

impl Lang {
    pub(crate) const ALL: [Self; 3] = [Self::En, Self::Pt, Self::Es];

    /// The `lang` attribute of a page.
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Pt => "pt-BR",
            Self::Es => "es",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::En => "English",
            Self::Pt => "Português",
            Self::Es => "Español",
        }
    }

    pub(crate) fn from_tag(tag: &str) -> Option<Self> {
        let primary = tag.split(['-', '_']).next()?;
        Self::ALL.into_iter().find(|lang| {
            lang.tag().split('-').next().is_some_and(|known| known.eq_ignore_ascii_case(primary))
        })
    }

    /// The first supported language of `Accept-Language`. Weights are ignored: browsers send languages in
    /// order of preference.
    pub(crate) fn negotiate(headers: &HeaderMap) -> Self {
        let header =
            headers.get(http::header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
        let tags = header.unwrap_or_default().split(',');
        tags.filter_map(|tag| Self::from_tag(tag.split(';').next().unwrap_or_default().trim()))
            .next()
            .unwrap_or_default()
    }

    /// Formats an integer with thousands separators.
    pub(crate) fn number(self, number: u64) -> String {
        let separator = match self {
            Self::En => ',',
            Self::Pt | Self::Es => '.',
        };
        let digits = number.to_string();
        let mut text = String::with_capacity(digits.len() + digits.len() / 3);
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(separator);
            }
            text.push(digit);
        }
        text
    }

    /// Formats a number with `places` decimals.
    pub(crate) fn decimal(self, number: f64, places: usize) -> String {
        let text = format!("{number:.places$}");
        match self {
            Self::En => text,
            Self::Pt | Self::Es => text.replace('.', ","),
        }
    }

    pub(crate) fn plural(self, count: u64, one: &'static str, many: &'static str) -> &'static str {
        let is_one = match self {
            Self::En | Self::Es => count == 1,
            Self::Pt => count <= 1,
        };
        if is_one { one } else { many }
    }

    /// Fills a count into the singular or plural text.
    pub(crate) fn count(self, count: u64, one: &'static str, many: &'static str) -> String {
        fill(self.plural(count, one, many), &[&self.number(count)])
    }
}

/// Replaces each `{}` of a text by a value, in order.
pub(crate) fn fill(text: &str, values: &[&dyn std::fmt::Display]) -> String {
    use std::fmt::Write as _;
    let mut parts = text.split("{}");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for (at, part) in parts.enumerate() {
        if let Some(value) = values.get(at) {
            let _ = write!(filled, "{value}");
        }
        filled.push_str(part);
    }
    filled
}

/// Like [`fill`] with one value, for templates.
pub(crate) fn fill_one(text: &str, value: impl std::fmt::Display) -> String {
    fill(text, &[&value])
}

/// Texts that are found by a code of the API.
pub(crate) trait TextsByCode {
    /// The text of a row.
    fn find(&self, name: &str) -> Option<&'static str>;

    /// The text of the row `{group}_{code}`. Unknown codes are shown as the API sent them.
    fn by_code<'w>(&self, group: &str, code: &'w str) -> &'w str {
        self.find(&format!("{group}_{code}")).unwrap_or(code)
    }
}

/// Makes a table of words: `translations!(Name { field: "English", "Português", "Español"; … });`, used as
/// `Name::of(lang).field`.
macro_rules! translations {
    ($(#[$about:meta])* $table:ident { $($name:ident: $en:literal, $pt:literal, $es:literal;)* }) => {
        $(#[$about])*
        #[derive(Debug)]
        pub(crate) struct $table { $(pub(crate) $name: &'static str,)* }

        impl $table {
            const EN: Self = Self { $($name: $en,)* };
            const PT: Self = Self { $($name: $pt,)* };
            const ES: Self = Self { $($name: $es,)* };

            pub(crate) fn of(lang: $crate::lang::Lang) -> &'static Self {
                match lang {
                    $crate::lang::Lang::En => &Self::EN,
                    $crate::lang::Lang::Pt => &Self::PT,
                    $crate::lang::Lang::Es => &Self::ES,
                }
            }

            #[cfg(test)]
            pub(crate) const ROWS: &'static [(&'static str, [&'static str; 3])] =
                &[$((stringify!($name), [$en, $pt, $es]),)*];
        }

        impl $crate::lang::TextsByCode for $table {
            fn find(&self, name: &str) -> Option<&'static str> {
                match name {
                    $(stringify!($name) => Some(self.$name),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use translations;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn browser_gets_its_first_supported_language() {
        for (header, expected) in [
            ("", Lang::En),
            ("de", Lang::En),
            ("pt-BR,pt;q=0.9,en;q=0.8", Lang::Pt),
            ("pt-PT", Lang::Pt),
            ("de, es-419;q=0.9, en;q=0.5", Lang::Es),
            ("EN-us", Lang::En),
            (";;,,=", Lang::En),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::ACCEPT_LANGUAGE, HeaderValue::from_static(header));
            assert_eq!(Lang::negotiate(&headers), expected, "case: {header}");
        }
    }

    #[test]
    fn numbers_use_the_separators_of_the_language() {
        for (number, en, pt) in [
            (0, "0", "0"),
            (999, "999", "999"),
            (1000, "1,000", "1.000"),
            (1_234_567, "1,234,567", "1.234.567"),
        ] {
            assert_eq!(
                (Lang::En.number(number).as_str(), Lang::Pt.number(number).as_str()),
                (en, pt)
            );
        }
        assert_eq!(
            (Lang::En.decimal(1.25, 1), Lang::Es.decimal(99.5, 1)),
            ("1.2".into(), "99,5".into())
        );
    }

    #[test]
    fn plural_form_depends_on_count_and_language() {
        for (lang, count, expected) in [
            (Lang::En, 0, "0 many"),
            (Lang::En, 1, "1 one"),
            (Lang::En, 2_000, "2,000 many"),
            (Lang::Pt, 0, "0 one"),
            (Lang::Pt, 1, "1 one"),
            (Lang::Pt, 2_000, "2.000 many"),
            (Lang::Es, 0, "0 many"),
            (Lang::Es, 1, "1 one"),
        ] {
            assert_eq!(lang.count(count, "{} one", "{} many"), expected, "case: {lang:?}");
        }
    }

    #[test]
    fn placeholders_are_filled_in_order() {
        assert_eq!(fill("{} of {}", &[&1, &"two"]), "1 of two");
        assert_eq!(fill("nothing", &[&1]), "nothing");
        assert_eq!(fill("{} and {}", &[&1]), "1 and ");
    }
}
