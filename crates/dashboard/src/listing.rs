//! Lists of the API as pages show them: behind a filter bar, page by page.

use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    client::{Address, List, encode},
    filter::{Bar, Filter},
    lang::fill,
    page::Failed,
    visitor::Visitor,
    words::Common,
};

/// What the address of a list with a filter bar says.
#[derive(Default, Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    pub(crate) q: String,
    pub(crate) cursor: Option<String>,
}

/// A list with a filter bar.
pub(crate) struct Listing {
    /// The page.
    pub(crate) path: &'static str,
    /// What the API calls the list.
    pub(crate) name: &'static str,
    /// Names of the filter bar, and what the API calls them; see [`Filter::parameters`].
    pub(crate) known: &'static [(&'static str, &'static str)],
    /// A filter that somebody may type.
    pub(crate) example: &'static str,
}

/// What such a list shows at once.
pub(crate) struct Filtered<T> {
    pub(crate) filter: Filter,
    pub(crate) bar: Bar,
    pub(crate) found: List<T>,
    pub(crate) pager: Pager,
}

impl Listing {
    /// Asks the API. What was typed and cannot be asked is no failure: nothing is found, and the bar
    /// says why.
    pub(crate) async fn look<T: DeserializeOwned>(
        &self,
        visitor: &Visitor,
        asked: &Asked,
    ) -> Result<Filtered<T>, Failed> {
        let c = Common::of(visitor.lang());
        let filter = Filter::parse(&asked.q);
        let mut bar = Bar::new(self.path, &filter, self.known, self.example, c);
        let address = Address::new(&[self.name]).with_some("cursor", asked.cursor.as_deref());
        let found = match filter.ask(address, self.known, visitor.now()) {
            Err(unknown) => {
                bar.problem = Some(fill(c.unknown_word, &[&unknown, &bar.known.join(" ")]));
                List::default()
            }
            Ok(address) => match visitor.get::<List<T>>(address).await {
                Ok(found) => found,
                Err(trouble) if trouble.is_about_what_was_asked() => {
                    bar.refused(trouble);
                    List::default()
                }
                Err(trouble) => return Err(visitor.failed(trouble)),
            },
        };
        let here = format!("{}?q={}", self.path, encode(&bar.typed));
        let pager = Pager::new(here, asked.cursor.as_deref(), found.next_cursor.as_deref());
        Ok(Filtered { filter, bar, found, pager })
    }
}

/// The ways from one page of a list to others.
pub(crate) struct Pager {
    /// None on the first page itself.
    pub(crate) first: Option<String>,
    pub(crate) next: Option<String>,
}

impl Pager {
    /// `here` is the first page, `cursor` the place that this one begins at, if it is another.
    pub(crate) fn new(here: String, cursor: Option<&str>, next_cursor: Option<&str>) -> Self {
        let joint = if here.contains('?') { '&' } else { '?' };
        Self {
            next: next_cursor.map(|next| format!("{here}{joint}cursor={}", encode(next))),
            first: cursor.map(|_| here),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_leads_to_the_next_one_and_back_to_the_first() {
        let ways = |here: &str, cursor, next| {
            let pager = Pager::new(here.to_owned(), cursor, next);
            (pager.first, pager.next)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(ways("/a", None, None), (None, None));
        assert_eq!(ways("/a", Some("1"), None), (some("/a"), None));
        assert_eq!(ways("/a", None, Some("2+")), (None, some("/a?cursor=2%2B")));
        let both = (some("/a?q="), some("/a?q=&cursor=2"));
        assert_eq!(ways("/a?q=", Some("1"), Some("2")), both);
    }
}
